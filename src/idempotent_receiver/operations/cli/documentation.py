"""The documentation's address from the package metadata, for references in command output."""

from importlib.metadata import metadata


def address() -> str | None:
    """The documentation's address, which the release writes into the package's metadata. None in a checkout, where the
    pages are local files.
    """
    urls = [each.partition(", ") for each in metadata("idempotent-receiver").get_all("Project-URL") or []]
    return next((url for name, _, url in urls if name == "Documentation"), None)


def section(page: str, title: str) -> str:
    """A reference to a section by page and title, because links differ between a repository and a site."""
    found = address()
    return f'docs/{page}.md, "{title}"' if found is None else f'"{title}" on the page "{page}" of {found}'
