"""Self-contained HTML pages with embedded data. A page loads nothing and sends nothing.

`page.html` is the common shell. Each page adds an HTML fragment with a `<style>` and a `<script>`; the script reads its
data from `data`.
"""

import base64
import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

_SHELL = Path(__file__).with_name("page.html")


def html_of(fragment: str, data: Any) -> str:
    """A page made from a fragment and JSON data."""
    return data_text(data).join(around(fragment))


def around(fragment: str) -> tuple[str, str]:
    """The parts of a page before and after its data.

    The page's content security policy permits only the scripts and styles of the shell and the fragment.
    """
    page = _SHELL.read_text(encoding="utf-8").replace("<!-- its own part -->", fragment, 1)
    for kind in ("style", "script"):
        own = re.findall(rf"<{kind}>(.*?)</{kind}>", page, re.DOTALL)
        page = page.replace(f"{kind}-hashes", " ".join(map(_hash, own)), 1)
    before, _, after = page.partition('"the data"')
    return before, after


def data_text(data: Any) -> str:
    """Data as JSON for a page, escaped so that no text in it can act as markup."""
    return json.dumps(data, ensure_ascii=True).replace("<", "\\u003c")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'"
