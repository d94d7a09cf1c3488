"""A real browser, for the pages that we make. Nobody clicks: a script of the test does, as a person would."""

from __future__ import annotations

import base64
import html
import json
import os
import re
import shutil
import subprocess
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

HELP = """
const light = rgb => {
  const parts = rgb.match(/[0-9.]+/g).map(part => part / 255);
  const [r, g, b] = parts.map(part => part <= .04045 ? part / 12.92 : ((part + .055) / 1.055) ** 2.4);
  return .2126 * r + .7152 * g + .0722 * b;
};
const back = light(getComputedStyle(document.body).backgroundColor);
const contrast = element => {
  const text = light(getComputedStyle(element).color);
  return (Math.max(text, back) + .05) / (Math.min(text, back) + .05);
};
const press = (element, key) =>
  element.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true}));
const looks = like => ({
  foreign: performance.getEntriesByType("resource").length,
  dark: back < .2,
  contrast: Math.min(...[...document.querySelectorAll(like)].map(contrast)),
  overflows: document.documentElement.scrollWidth > innerWidth,
});
const tell = told =>
  document.body.replaceChildren(Object.assign(document.createElement("pre"), {textContent: JSON.stringify(told)}));
"""


def seen(page: str, driver: str, folder: Path, *, scheme: str = "light", width: int = 1200) -> Any:
    """What a browser shows of a page: what the driver, a script, gives to `tell`. Skips where no browser is.

    The page's own policy would refuse the driver, so it is let in by its hash, and nothing else is.
    """
    if BROWSER is None:
        pytest.skip("no Chromium is installed here: nobody looks at the page")
    script = f"{HELP}{{{driver}}}"
    allowed = base64.b64encode(sha256(script.encode()).digest()).decode()
    assert page.count("script-src ") == 1
    file = folder / "page.html"
    page = page.replace("script-src ", f"script-src 'sha256-{allowed}' ")
    file.write_text(page.replace("</html>", f"<script>{script}</script>\n</html>"), encoding="utf-8")
    options = ["--headless", "--disable-gpu", "--no-first-run", f"--window-size={width},900", "--dump-dom"]
    options += [f"--user-data-dir={folder / 'profile'}", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    options += [f"--blink-settings=preferredColorScheme={int(scheme == 'light')}"]
    looked = subprocess.run([BROWSER, *options, file.as_uri()], capture_output=True, text=True, check=True, timeout=120)
    found = re.search(r"<pre>(.*)</pre>", looked.stdout, re.DOTALL)
    assert found is not None, looked.stdout[:2000]
    return json.loads(html.unescape(found[1]))
