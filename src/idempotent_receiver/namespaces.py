"""Namespaces: what keeps the functions apart that share a table.

A record's id is `{namespace}#{key}`, or the key alone. A namespace holds no `#`, and neither does a key without one, so
that no two pairs have one id, whoever chose the key.
"""


def checked(namespace: object) -> str | None:
    """The namespace of a store. Raises TypeError or ValueError for one that ids could not be told apart by."""
    if namespace is None:
        return None
    if not isinstance(namespace, str):
        raise TypeError(f"namespace must be a string such as 'orders', or None for no namespace; it is {namespace!r}")
    if not namespace:
        raise ValueError(
            "namespace is empty: is it a variable that is not set? Give it a name such as 'orders', "
            "or None for no namespace"
        )
    if "#" in namespace:
        raise ValueError(
            f"namespace {namespace!r} has a '#', which ends the namespace in a record's id: choose one without; for a "
            "prefix that Powertools has written, see docs/from-powertools.md"
        )
    try:
        namespace.encode()
    except UnicodeEncodeError:
        raise ValueError(f"namespace {namespace!r} has a lone surrogate, which no AWS service takes") from None
    return namespace
