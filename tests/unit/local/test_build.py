"""A function's code is built for this machine, in a folder of its own."""

from __future__ import annotations

import sys
import sysconfig
import zipfile
from dataclasses import replace
from subprocess import CompletedProcess, TimeoutExpired
from typing import TYPE_CHECKING

import pytest

from harness.cloud import ROOT
from idempotent_receiver.local import build as building
from idempotent_receiver.local.build import build, build_by_make
from idempotent_receiver.local.deployment import DeployError, Target

if TYPE_CHECKING:
    from pathlib import Path


def wheel(folder: Path) -> str:
    """The smallest wheel there is, in this folder; its file's name."""
    name = "tiny_wheel-1.0-py3-none-any.whl"
    with zipfile.ZipFile(folder / name, "w") as archive:
        archive.writestr("tiny_wheel.py", "")
        information = "tiny_wheel-1.0.dist-info"
        archive.writestr(f"{information}/METADATA", "Metadata-Version: 2.1\nName: tiny-wheel\nVersion: 1.0\n")
        archive.writestr(f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        files = ("tiny_wheel.py", f"{information}/METADATA", f"{information}/WHEEL", f"{information}/RECORD")
        archive.writestr(f"{information}/RECORD", "".join(f"{each},,\n" for each in files))
    return name


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(ROOT / ".tools" / "uv" / "bin"), prepend=":")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "handler.py").write_text("import tiny_wheel\n")
    return tmp_path / "src"


def test_code_is_built_once_with_what_its_requirements_name(code: Path, tmp_path: Path) -> None:
    """A wheel beside the requirements, too."""
    (code / "requirements.txt").write_text(f"./{wheel(code)}\n")
    (code / "__pycache__").mkdir()
    built = build(code, tmp_path / "build", tmp_path)
    assert {"handler.py", "tiny_wheel.py"} <= {each.name for each in built.iterdir()}
    assert not (built / "__pycache__").exists()
    (code / "requirements.txt").write_text("no such requirement\n")
    assert build(code, tmp_path / "build", tmp_path) == built


def test_requirements_beside_the_template_are_for_every_function(code: Path, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text(f"./{wheel(tmp_path)}\n")
    built = build(code, tmp_path / "build", tmp_path)
    assert {each.name for each in built.iterdir()} >= {"handler.py", "tiny_wheel.py"}


def test_a_function_with_requirements_of_its_own_has_no_others_and_nothing_hidden(
    code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[object, ...]] = []
    monkeypatch.setattr(building, "_run", lambda command, folder, what: ran.append((command[-1], folder)))
    for folder in (code, tmp_path):
        (folder / "requirements.txt").write_text("tiny-wheel\n")
    (code / ".venv").mkdir()
    built = build(code, tmp_path / "build", tmp_path)
    assert ran == [("requirements.txt", code)]
    assert {each.name for each in built.iterdir()} == {"handler.py", "requirements.txt"}


def test_of_a_build_that_fails_the_end_is_told_and_one_that_hangs_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "\n".join(f"line {number}." for number in range(50))
    monkeypatch.setattr(building.subprocess, "run", lambda command, **given: CompletedProcess(command, 1, said))
    with pytest.raises(DeployError, match=r"it failed\.\nline 38\.(.|\n)*line 49\.$"):
        building._run(["make"], tmp_path, "it failed")

    def hangs(command: list[str], *, timeout: float | None = None, **given: object) -> None:
        assert timeout is not None, "it would hang for ever"
        raise TimeoutExpired(command, timeout)

    monkeypatch.setattr(building.subprocess, "run", hangs)
    with pytest.raises(DeployError, match=r"it failed: it took longer than 300 s\. Check"):
        building._run(["make"], tmp_path, "it failed")


def test_without_pip_uv_installs_for_this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "_has_pip", lambda: False)
    monkeypatch.setattr(building.shutil, "which", lambda name: f"/bin/{name}")
    assert building._installer() == ["/bin/uv", "pip", "install", "--python", sys.executable]


def test_requirements_that_cannot_be_installed_are_told(code: Path, tmp_path: Path) -> None:
    (code / "requirements.txt").write_text("./no-such-wheel-1.0-py3-none-any.whl\n")
    with pytest.raises(
        DeployError, match=r"requirements\.txt could not be installed(.|\n)*no-such-wheel|no_such_wheel"
    ):
        build(code, tmp_path / "build", tmp_path)


def test_without_an_installer_it_says_how_to_get_one(
    code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code / "requirements.txt").write_text("")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(building, "_has_pip", lambda: False)
    with pytest.raises(DeployError, match="ensurepip"):
        build(code, tmp_path / "build", tmp_path)


# By the project's Makefile, as SAM does it.

SAYS = """\
build-Consumer:
	@printf '%s\\n' "$(BUILD_FOR)" "$(PYTHON)" "$$(pwd)" "$(MAKELEVEL)$(JOBS)" > "$(ARTIFACTS_DIR)/said"
	@cp -R "$(CODE)." "$(ARTIFACTS_DIR)"
"""


def target(project: Path, *, context: str = ".", working: str | None = ".") -> Target:
    """The function of a project whose code is in src/."""
    place = None if working is None else project / working
    return Target(function="Consumer", code=project / "src/", context=project / context, working=place)


def made(folder: Path) -> list[str]:
    return (folder / "said").read_text().splitlines()


def test_a_makefile_builds_for_this_machine_once_and_never_into_sams_folder(
    code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is run by a make that knows nothing of the one that has called us."""
    monkeypatch.setenv("MAKEFLAGS", " -- JOBS=4")
    monkeypatch.setenv("MAKELEVEL", "1")
    (tmp_path / "Makefile").write_text(SAYS.replace("$(CODE)", "src/"))
    built = build_by_make(target(tmp_path), tmp_path / "build")
    assert made(built) == ["host", sys.executable, str(tmp_path), "0"]
    assert {each.name for each in built.iterdir()} == {"said", "handler.py"}
    assert not (tmp_path / ".aws-sam").exists()
    (tmp_path / "Makefile").write_text("build-Consumer:\n\tfalse\n")
    assert build_by_make(target(tmp_path), tmp_path / "build") == built


@pytest.mark.parametrize("working", [None, "src", "src/inner"])
def test_what_is_built_in_the_code_is_built_in_a_copy_of_it(code: Path, tmp_path: Path, working: str | None) -> None:
    """With its Makefile beside it, if the template names no other folder. SAM does so too."""
    (code / "inner").mkdir()
    (code / ".git").mkdir()
    (code / "Makefile").write_text(SAYS.replace("$(CODE)", "./"))
    built = build_by_make(target(tmp_path, context="src", working=working), tmp_path / "build")
    inside = (tmp_path / "build" / "Consumer.source") / ("inner" if working == "src/inner" else "")
    assert made(built)[2] == str(inside)
    assert not (tmp_path / "build" / "Consumer.source" / ".git").exists()


def foreign(name: str) -> str:
    return f'build-Consumer:\n\t@touch "$(ARTIFACTS_DIR)/core.{name}.so"\n'


@pytest.mark.parametrize(
    ("makefile", "said"),
    [
        (None, r"but .*/Makefile does not exist: correct ContextPath"),
        ("build-Other:\n\ttrue\n", r"`make build-Consumer` failed .*(.|\n)*No rule to make target"),
        (
            "build-Consumer:\n\t@echo no matching wheel; false\n",
            r"`make build-Consumer` failed(.|\n)*no matching wheel",
        ),
        ("build-Consumer:\n\t@true\n", r"`make build-Consumer` left \$\(ARTIFACTS_DIR\) empty"),
        (
            foreign("cpython-399-aarch64-linux-gnu"),
            r"the target build-Consumer built for another machine.*BUILD_FOR",
        ),
    ],
)
def test_what_keeps_a_makefile_from_building_is_told_with_its_remedy(
    code: Path, tmp_path: Path, makefile: str | None, said: str
) -> None:
    if makefile is not None:
        (tmp_path / "Makefile").write_text(makefile)
    with pytest.raises(DeployError, match=said):
        build_by_make(target(tmp_path), tmp_path / "build")


def test_compiled_modules_of_this_python_are_its_own(code: Path, tmp_path: Path) -> None:
    """Though a package may have some for others beside them."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    other = "core.cpython-399-aarch64-linux-gnu.so"
    touch = f'touch "$(ARTIFACTS_DIR)/core{suffix}" "$(ARTIFACTS_DIR)/{other}"'
    (tmp_path / "Makefile").write_text(f"build-Consumer:\n\t@{touch}\n")
    try:
        built = build_by_make(target(tmp_path), tmp_path / "build")
    except DeployError as error:
        pytest.fail(str(error))
    assert {each.name for each in built.iterdir()} == {f"core{suffix}", other}


def test_where_there_is_no_code_or_no_make_that_is_told(
    code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = replace(target(tmp_path), code=tmp_path / "source")
    with pytest.raises(DeployError, match="does not exist: correct CodeUri"):
        build_by_make(absent, tmp_path / "build")
    (tmp_path / "Makefile").write_text(SAYS)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DeployError, match="No such file or directory: 'make'"):
        build_by_make(target(tmp_path), tmp_path / "build")
