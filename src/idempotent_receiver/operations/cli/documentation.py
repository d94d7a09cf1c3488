"""Where a command's text sends its reader: the address of the documentation, as the package itself knows it."""

from importlib.metadata import metadata


def address() -> str | None:
    """The documentation's address, which the release has written into the package's metadata. A checkout has none: the
    pages are beside it.
    """
    urls = [each.partition(", ") for each in metadata("idempotent-receiver").get_all("Project-URL") or []]
    return next((url for name, _, url in urls if name == "Documentation"), None)


def section(page: str, title: str) -> str:
    """How a reader finds a section. It names page and title: a repository and a site have different links for them."""
    found = address()
    return f'docs/{page}.md, "{title}"' if found is None else f'"{title}" on the page "{page}" of {found}'
