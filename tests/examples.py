"""The projects in examples/: each is what `receiver init` writes, with the files of its folder on top and its patch."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from harness.cloud import ROOT
from idempotent_receiver.operations.cli import init as command
from idempotent_receiver.operations.cli import receiver as command_line
from idempotent_receiver.operations.starter.source import LibrarySource

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLES = ROOT / "examples"
PATCH = "project.patch"
NAMES = sorted(path.parent.name for path in EXAMPLES.glob(f"*/{PATCH}"))


def command_of(name: str) -> list[str]:
    """The command that makes the project, which is its patch's first line."""
    return shlex.split((EXAMPLES / name / PATCH).read_text().partition("\n")[0])


def second_consumer() -> tuple[str, str, str]:
    """The code, the resources and the outputs of the second consumer in the example that sends to one."""
    code = (EXAMPLES / "orders/src/orders/refunds.py").read_text()
    lines = (EXAMPLES / "orders" / PATCH).read_text().splitlines()
    added = "".join(f"{line[1:]}\n" for line in lines if line.startswith("+") and not line.startswith("+++"))
    resources, first_output, outputs = added.partition("  RefundsQueueUrl:")
    described = re.findall(r"(?m)^  Refunds.*\n", first_output + outputs)
    return code, resources[resources.index("  RefundsQueue:\n") :], "".join(described)


def composed(name: str, folder: Path) -> Path:
    """The example as a project in this folder, as examples/README.md says; its library is on an index."""
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        patched.setattr(command, "source", lambda _: LibrarySource("idempotent-receiver", "idempotent-receiver[cli]"))
        with pytest.raises(SystemExit) as ended:
            command_line.main(command_of(name)[1:])
    assert not ended.value.code
    shutil.copytree(EXAMPLES / name, folder / name, dirs_exist_ok=True)
    applied = subprocess.run(
        ["patch", "-p1", "--fuzz=0", "-i", PATCH], cwd=folder / name, capture_output=True, text=True, check=False
    )
    assert applied.returncode == 0, f"{PATCH} no longer fits what {' '.join(command_of(name))} writes: {applied.stdout}"
    return folder / name
