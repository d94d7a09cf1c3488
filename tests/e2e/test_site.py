"""`make docs` builds a site whose links lead somewhere, which loads nothing from elsewhere and can be searched."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from threading import Thread
from urllib.parse import unquote, urlsplit

import pytest

from tests.browser import BROWSER
from tests.e2e.making import run
from tests.unit.test_public import PUBLIC

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / ".build" / "site"
PAGES = ROOT / ".build" / "docs"


class Page(HTMLParser):
    """What a page links to, what it loads, and its anchors."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.text = path, path.read_text()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif name == "href" and value and tag == "a":
                self.links.append(value)
            elif name in ("href", "src", "srcset", "data", "poster", "action") and value:
                self.loads.append(value)


@pytest.fixture(scope="module")
def site() -> dict[str, Page]:
    """The pages by their names, as `make docs` builds them."""
    run("make", "docs")
    return {path.name: Page(path) for path in SITE.glob("*.html")}


def leads_nowhere(link: str, page: Page, site: dict[str, Page]) -> bool:
    """Whether this site lacks the file or the anchor."""
    parts = urlsplit(link)
    if parts.scheme:
        return False
    there = (page.path.parent / unquote(parts.path)).resolve() if parts.path else page.path
    if there.is_dir():
        there /= "index.html"
    if not there.is_file():
        return True
    found = site.get(there.name)
    return bool(parts.fragment and found) and unquote(parts.fragment) not in site[there.name].anchors


def test_every_link_image_script_and_style_of_the_site_is_there(site: dict[str, Page]) -> None:
    assert len(site) > 15
    missing = [
        (name, each)
        for name, page in site.items()
        if name != "404.html"  # its links are absolute: nobody knows where it is shown
        for each in page.links + page.loads
        if leads_nowhere(each, page, site)
    ]
    assert missing == []


def test_the_site_loads_nothing_from_elsewhere(site: dict[str, Page]) -> None:
    loaded = [each for page in site.values() for each in page.loads]
    styles = "\n".join(path.read_text() for path in SITE.rglob("*.css"))
    loaded += re.findall(r"url\(['\"]?([^)'\"]+)", styles) + re.findall(r"@import\s+['\"]([^'\"]+)", styles)
    assert loaded
    assert [each for each in loaded if urlsplit(each).netloc or urlsplit(each).scheme not in ("", "data")] == []


@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed here: nobody looks at the site")
def test_in_a_browser_a_page_asks_for_nothing_elsewhere_and_its_diagrams_are_drawn(
    site: dict[str, Page], tmp_path: Path
) -> None:
    handler = partial(SimpleHTTPRequestHandler, directory=str(SITE))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        origin = f"http://127.0.0.1:{server.server_port}"
        options = ["--headless", "--disable-gpu", "--no-first-run", "--virtual-time-budget=8000", "--dump-dom"]
        options += [f"--user-data-dir={tmp_path / 'profile'}", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        options += [
            f"--log-net-log={tmp_path / 'net.json'}",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        ]
        command = [str(BROWSER), *options, f"{origin}/protocol.html"]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
        server.shutdown()
    # The browser asks for things of its own too, on behalf of no page.
    events = json.loads((tmp_path / "net.json").read_text())["events"]
    asked = {event["params"]["url"] for event in events if event.get("params", {}).get("initiator") == origin}
    assert f"{origin}/search.json" in asked
    assert [url for url in asked if not url.startswith(f"{origin}/")] == []
    assert shown.count('<div class="mermaid"') == (3 if shutil.which("npm") else 0)


def test_every_page_is_in_the_navigation(site: dict[str, Page]) -> None:
    start = site["index.html"]
    reached = {urlsplit(link).path.removeprefix("./") for link in start.links} | {"", "index.html", "404.html"}
    assert set(site) - reached == set()


def test_the_search_finds_sections_of_every_page(site: dict[str, Page]) -> None:
    items = json.loads((SITE / "search.json").read_text())["items"]
    assert {urlsplit(item["location"]).path for item in items} == set(site) - {"404.html"}
    assert any(item["location"] == "operating.html#dead-letters" for item in items)


def test_every_public_class_and_function_is_in_the_reference(site: dict[str, Page]) -> None:
    public = [
        f"{package}.{name}"
        for package in PUBLIC
        for name in import_module(package).__all__
        if callable(getattr(import_module(package), name))
    ]
    assert [name for name in public if name not in site["library.html"].anchors] == []


@pytest.mark.parametrize("link", ["[a page](nowhere.md)", "[an anchor](limits.md#nowhere)"])
def test_a_link_that_leads_nowhere_stops_the_build(site: dict[str, Page], tmp_path: Path, link: str) -> None:
    shutil.copytree(PAGES, tmp_path / "build" / "docs")
    shutil.copy(ROOT / "docs" / "zensical.toml", tmp_path / "build")
    (tmp_path / "src").symlink_to(ROOT / "src")
    with (tmp_path / "build" / "docs" / "index.md").open("a") as page:
        page.write(f"\n{link}\n")
    build = [ROOT / ".tools" / "docs" / "bin" / "zensical", "build", "--strict"]
    done = subprocess.run(build, cwd=tmp_path / "build", capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0
    assert "1 issue found" in done.stderr + done.stdout
