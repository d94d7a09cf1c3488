"""The Lambda layer is made of the wheel, and the library is imported from it."""

from __future__ import annotations

import platform
import zipfile
from pathlib import Path

import pytest

from harness.deploy import HOST_BUILD
from harness.emulator import MACHINES
from tests.e2e.making import interpreter, library_files, run


@pytest.fixture(scope="session")
def layer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The layer for this machine's architecture, unpacked as Lambda does in /opt."""
    folder = tmp_path_factory.mktemp("layer")
    platform_of_layer = ["RUNTIME=python3.13", f"ARCHITECTURE={MACHINES[platform.machine().lower()]}"]
    run("make", "--silent", "layer", ".build/host.complete", f"DIST={folder}", *platform_of_layer)
    (archive,), (wheel,) = folder.glob("*.zip"), folder.glob("*.whl")
    assert archive.name.startswith(f"idempotent-receiver-layer-{wheel.name.split('-')[1]}-python3.13-")
    assert archive.stat().st_size < 50_000_000, "Lambda takes no larger archive"
    for packed, where in ((archive, "opt"), (wheel, "wheel")):
        with zipfile.ZipFile(packed) as contents:
            contents.extractall(folder / where)
    assert [path.name for path in (folder / "opt").iterdir()] == ["python"]
    return folder


def test_the_layer_has_the_wheels_data_path_and_what_it_needs(layer: Path) -> None:
    """Without the AWS SDK, which Lambda's runtime brings, and without what is for operators and for tests."""
    python, wheel = layer / "opt" / "python", layer / "wheel"
    present = {path.name for path in python.iterdir()}
    assert present >= {"idempotent_receiver", "pydantic", "pydantic_core", "aws_lambda_powertools", "rfc8785"}
    assert present & {"boto3", "botocore", "urllib3", "typer", "rich", "app", "bin"} == set()
    for name in (ours := library_files(python)):
        assert (python / name).read_bytes() == (wheel / name).read_bytes(), name
    left_out = {name.split("/")[1] for name in library_files(wheel) - ours}
    assert left_out >= {"operations", "testing", "__main__.py"}
    assert ours == library_files(HOST_BUILD), "the function and the layer have the same files of the library"


def test_the_library_is_imported_from_the_layer(layer: Path, tmp_path: Path) -> None:
    python = interpreter("python3.13")
    if python is None:
        pytest.skip("no Python 3.13 runs here: the layer was made, and not imported")
    script = """
import sys
sys.path[:0] = sys.argv[1:]
import idempotent_receiver, pydantic
idempotent_receiver.sqs_consumer(idempotent_receiver.DynamoDBStore("records"))
print(idempotent_receiver.__file__, pydantic.__file__, sep="\\n")
"""
    opt = layer / "opt" / "python"
    done = run(python, "-B", "-I", "-S", "-W", "error", "-c", script, opt, HOST_BUILD, cwd=tmp_path)
    assert [Path(line).is_relative_to(opt) for line in done.stdout.splitlines()] == [True, True]
