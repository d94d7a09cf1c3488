"""The tutorial, followed word for word in an empty folder: what it says to type works, and shows what it says.

The commands of `make cloud` are in the tests of the sandbox; `make deploy` needs an account.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = (ROOT / "docs/tutorial.md").read_text().partition("\n## 6.")[0]
MISTAKE = "    charge(order.customer, order.cents)\n"
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "MAKEFLAGS", "MAKELEVEL")
}


def typed(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-euc", script], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=600, check=False
    )


def blocks(language: str) -> list[str]:
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```$", TUTORIAL)


def test_the_tutorial_can_be_followed_word_for_word(tmp_path: Path) -> None:
    """Its test passes, then reports the mistake as quoted, and passes again once that is fixed."""
    make, test, test_again, local, second, with_second = blocks("sh")
    shown, handler, its_test, mended, sends = blocks("py")
    story, outcome = blocks("text")
    project = tmp_path / "orders"

    made = typed(make.replace("/path/to/idempotent-receiver", str(ROOT)), tmp_path)
    assert made.returncode == 0, made.stderr
    assert shown in (project / "src/orders/handler.py").read_text()
    passed = typed(test, project)
    assert passed.returncode == 0, passed.stdout + passed.stderr

    for text in (handler, its_test):
        path, _, whole = text.partition("\n")
        (project / path.removeprefix("# ")).write_text(whole)
    failed = typed(test, project)
    assert failed.returncode != 0
    assert story.strip() in failed.stdout

    assert handler.count(MISTAKE) == 1
    (project / "src/orders/handler.py").write_text(handler.replace(MISTAKE, mended))
    passed = typed(test_again, project)
    assert passed.returncode == 0, passed.stdout + passed.stderr
    ran = typed(local, project)
    assert (ran.returncode, ran.stdout.splitlines()[-1]) == (0, outcome.strip()), ran.stdout + ran.stderr

    ran = typed(f"CHECKOUT={ROOT}\n{second}", project)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    handler_file = project / "src/orders/handler.py"
    handler_file.write_text(handler_file.read_text() + sends)
    ran = typed(with_second, project)
    assert (ran.returncode, ran.stdout.splitlines()[-1]) == (0, outcome.strip()), ran.stdout + ran.stderr
