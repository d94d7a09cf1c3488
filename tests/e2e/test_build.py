"""The function is built for Lambda on any host, lean, and for this machine, where it answers every event as it must."""

from __future__ import annotations

import json
import marshal
import os
import platform
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.cloud import ROOT
from harness.deploy import HOST_BUILD
from harness.emulator import MACHINES
from harness.invoke import EVENTS, EXPECTED, application, expected_answer, matches, meant
from tests.e2e.making import ENVIRONMENT, UNAFFECTED, checkout, files, interpreter, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.emulator import Function

RUNTIMES = ("python3.13", "python3.14")
ARCHITECTURES = {"arm64": (183, "aarch64"), "x86_64": (62, "x86_64")}
"""Those that Lambda has; the number of each in a binary's header, and its name in a wheel's."""
every_runtime = pytest.mark.parametrize("runtime", RUNTIMES)
every_architecture = pytest.mark.parametrize("architecture", ARCHITECTURES)

DEPLOY_BUILD = ROOT / ".build" / "python3.13-arm64"
EVENT_FILES = sorted(EVENTS / path.name for path in EXPECTED.glob("*.json"))

WORKFLOW_FUNCTIONS = ("Start", "Sweep", "Reconcile", "Debit", "Credit", "Receipt", "Refund")
FUNCTIONS = ("Consumer", "Api", *WORKFLOW_FUNCTIONS)

ELF_MAGIC = b"\x7fELF"
UNCHECKED_HASH = 1

FUNCTION_ENVIRONMENT = {
    "AWS_DEFAULT_REGION": "us-east-1",
    "RECORDS_TABLE": "records",
    "ACCOUNTS_TABLE": "accounts",
    "ENTRIES_TABLE": "entries",
    "DEAD_LETTER_QUEUE_URL": "https://sqs.us-east-1.amazonaws.com/123456789012/dead",
    "POWERTOOLS_SERVICE_NAME": "consumer",
    "POWERTOOLS_METRICS_NAMESPACE": "Example",
}


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    """Both builds, up to date with the sources."""
    run("make", "--silent", "build")


@pytest.fixture(scope="module")
def functions() -> Iterator[dict[str, Function]]:
    with application("Consumer") as consumer, application("Api") as api:
        yield {"Consumer": consumer, "Api": api}


def binaries(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.read_bytes()[:4] == ELF_MAGIC]


def build_for(runtime: str, architecture: str) -> Path:
    """The build for a runtime and an architecture of Lambda."""
    build = ROOT / ".build" / f"{runtime}-{architecture}"
    run("make", "--silent", f"{build.relative_to(ROOT)}.complete")
    return build


def assert_fits(build: Path, runtime: str, architecture: str) -> None:
    """No binary and no wheel in it is for another Python or another machine."""
    number, machine = ARCHITECTURES[architecture]
    found = binaries(build)
    assert found, "pydantic's core is one"
    for path in found:
        assert struct.unpack_from("<H", path.read_bytes(), 18) == (number,), path
    python = runtime.removeprefix("python").replace(".", "")
    names = [path.name for path in build.rglob("*.so*")]
    assert names
    assert [name for name in names if f"cpython-{python}-{machine}" not in name and "abi3" not in name] == []
    wheels = [path.read_text() for path in build.glob("*.dist-info/WHEEL")]
    tags = [line.removeprefix("Tag: ") for each in wheels for line in each.splitlines() if line.startswith("Tag: ")]
    assert tags
    for tag in tags:
        version, _, platform = tag.split("-")
        assert platform == "any" or platform.endswith(machine), tag
        assert version in {"py3", "py2", f"cp{python}"} or "abi3" in tag, tag


@every_runtime
@every_architecture
def test_a_build_for_lambda_fits_its_runtime_and_architecture(runtime: str, architecture: str) -> None:
    """Only wheels are taken, so there is one of everything for each of them."""
    assert_fits(build_for(runtime, architecture), runtime, architecture)


@every_runtime
def test_a_build_for_lambda_is_imported_by_its_runtimes_python(runtime: str) -> None:
    python = interpreter(runtime)
    if python is None:
        pytest.skip(f"no {runtime} runs here: that there is a wheel of everything for it was tried, and no import")
    ran = imported(build_for(runtime, MACHINES[platform.machine().lower()]), python)
    assert (ran.stderr, ran.stdout) == ("", "lambda_handler\n")


def test_a_build_for_another_runtime_says_so_when_it_is_imported() -> None:
    """CloudFormation deploys whatever was built, and without a word Lambda would name a module of pydantic."""
    architecture = MACHINES[platform.machine().lower()]
    python = str(ROOT / ".tools" / "uv" / "bin" / "python")
    runtime = next(each for each in reversed(RUNTIMES) if each != version_of(python))
    ran = imported(build_for(runtime, architecture), python)
    told = ran.stderr.splitlines()[-1]
    assert told.startswith(f"ImportError: this package was built for {runtime}-{architecture} and runs on ")
    assert f"{version_of(python)}-{architecture}" in told
    assert "sam build" in told


def version_of(python: str) -> str:
    asked = "import sys; print('python%d.%d' % sys.version_info[:2])"
    return run(python, "-c", asked).stdout.strip()


IMPORTED = "import app.consumer; print(app.consumer.lambda_handler.__name__)"


def imported(build: Path, python: str | Path, program: str = IMPORTED) -> subprocess.CompletedProcess[str]:
    """What becomes of importing a function from its build, with the SDK behind it, as Lambda's runtime has one."""
    return subprocess.run(
        [
            *(str(python), "-B", "-I", "-S", "-W", "error", "-c"),
            *(f"import sys; sys.path[:0] = sys.argv[1:]\n{program}", str(build), str(HOST_BUILD)),
        ],
        env=FUNCTION_ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_deploy_build_is_lean() -> None:
    """It carries no SDK, which Lambda's runtime brings, no command line, no tests, no developer's tools."""
    present = {path.name for path in DEPLOY_BUILD.iterdir()}
    assert present >= {"app", "idempotent_receiver", "pydantic", "aws_lambda_powertools"}
    assert present & {"boto3", "botocore", "urllib3", "typer", "rich", "pytest", "moto", "bin", "tests"} == set()
    ours = {path.name for path in (DEPLOY_BUILD / "idempotent_receiver").iterdir()}
    assert ours & {"local", "operations", "testing", "__main__.py"} == set(), "only the data path is deployed"
    assert list(DEPLOY_BUILD.rglob(".*")) == []
    size = sum(path.stat().st_size for path in DEPLOY_BUILD.rglob("*") if path.is_file())
    assert size < 30_000_000


def test_what_is_for_tests_is_refused_where_it_is_not_deployed_with_its_remedy() -> None:
    """An application that deploys a store in memory would lose what it has to keep."""
    program = "from idempotent_receiver import DynamoDBStore; from idempotent_receiver import MemoryStore"
    done = imported(DEPLOY_BUILD, sys.executable, program)

    assert done.returncode == 1
    assert "ImportError: MemoryStore is for tests" in done.stderr
    assert "use DynamoDBStore" in done.stderr


def test_shipped_bytecode_is_for_3_13_and_trusted_as_it_is() -> None:
    """Lambda unpacks a zip, which changes every file's age: bytecode checked by age would be compiled again."""
    compiled = list(DEPLOY_BUILD.rglob("*.pyc"))
    if not compiled:
        pytest.skip("no Python 3.13 runs here, so none was shipped")
    sources = [path for path in DEPLOY_BUILD.rglob("*.py") if path.stat().st_size]
    assert len(compiled) >= len(sources)
    for path in compiled:
        assert path.name.endswith(".cpython-313.pyc")
        (flags,) = struct.unpack_from("<I", path.read_bytes(), 4)
        assert flags == UNCHECKED_HASH, path


def test_a_traceback_on_lambda_names_lambdas_folder() -> None:
    (path,) = (HOST_BUILD / "app" / "__pycache__").glob("consumer.*.pyc")
    assert marshal.loads(path.read_bytes()[16:]).co_filename == "/var/task/app/consumer.py"


def test_the_host_build_imports_with_nothing_but_itself() -> None:
    """No site-packages of ours, no path of the caller's: all that it needs is in the folder, and comes from there."""
    script = f"""
import boto3, pydantic, aws_lambda_powertools
{IMPORTED}
for module in list(sys.modules.values()):
    place = getattr(module, "__file__", None) or sys.argv[1]
    assert place.startswith((sys.argv[1], sys.base_prefix, "/usr/lib/python3")), place
"""
    # An environment with pip and uv in it, which -S leaves out.
    ran = imported(HOST_BUILD, ROOT / ".tools" / "uv" / "bin" / "python", script)
    assert (ran.stderr, ran.stdout) == ("", "lambda_handler\n")


def test_in_the_build_a_failure_inside_boto3_is_at_the_users_line() -> None:
    """boto3 lies beside the application there."""
    script = """
import boto3
from idempotent_receiver.errors import failure_of
path = f"{sys.argv[1]}/app/own.py"
names = {"__name__": "app.own"}
exec(compile("def pay(client):\\n    client.get_item(Wrong=1)", path, "exec"), names)
try:
    names["pay"](boto3.client("dynamodb"))
except Exception as error:
    print(failure_of(error).at)
"""
    ran = imported(HOST_BUILD, ROOT / ".tools" / "uv" / "bin" / "python", script)
    assert ran.stdout.startswith("app.own.pay:2, in botocore.validate."), ran.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="Lambda's emulator is a program for Linux")
@pytest.mark.parametrize("path", EVENT_FILES, ids=lambda path: path.stem)
def test_the_host_build_answers_as_expected(functions: dict[str, Function], path: Path) -> None:
    event = json.loads(path.read_text())
    answer = functions[meant(event)].invoke(event)
    assert matches(answer, expected_answer(path)), answer


def test_what_is_built_for_this_machine_says_so_in_the_environment(tmp_path: Path) -> None:
    """As `receiver local` and `make cloud` need it, whatever the template states."""
    run("make", "--silent", "build-Consumer", f"ARTIFACTS_DIR={tmp_path}", env={**UNAFFECTED, "BUILD_FOR": "host"})
    assert files(tmp_path) == files(HOST_BUILD)


@pytest.fixture(scope="module")
def fresh_checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkout(tmp_path_factory.mktemp("fresh"))


def build_in(checkout: Path, function: str, into: Path) -> subprocess.Popen[str]:
    """What SAM starts for a function."""
    into.mkdir(parents=True)
    return subprocess.Popen(
        ["make", f"build-{function}"],
        cwd=checkout,
        env={**ENVIRONMENT, "ARTIFACTS_DIR": str(into)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def test_functions_built_at_once_from_a_fresh_checkout_are_all_complete(fresh_checkout: Path, tmp_path: Path) -> None:
    """`sam build --parallel` and `sam sync` start a make for each function, and all of them find nothing made yet."""
    folder = tmp_path / "my project"  # SAM names it in full: half of such a name would be somebody else's folder
    builds = {name: build_in(fresh_checkout, name, folder / name) for name in FUNCTIONS}
    told = {name: build.communicate(timeout=300)[0] for name, build in builds.items()}
    assert {name: told[name] for name, build in builds.items() if build.returncode} == {}
    artifacts = [files(folder / name) for name in FUNCTIONS]
    # A package's list of its files has the checksum of a script that names the checkout.
    assert artifacts[0].keys() == files(DEPLOY_BUILD).keys()
    assert all(artifact == artifacts[0] for artifact in artifacts)


def test_a_build_that_was_killed_halfway_stands_in_nobodys_way(fresh_checkout: Path, tmp_path: Path) -> None:
    (fresh_checkout / "uv.lock").touch()  # so that the packages are fetched again
    with build_in(fresh_checkout, "Consumer", tmp_path / "Consumer") as halfway:
        assert halfway.stdout
        assert any("building the packages" in line for line in halfway.stdout), (
            "it has come to what all functions share"
        )
        waiting = build_in(fresh_checkout, "Api", tmp_path / "Api")
        os.killpg(halfway.pid, signal.SIGKILL)
    told, _ = waiting.communicate(timeout=300)
    assert waiting.returncode == 0, told
    assert files(tmp_path / "Api").keys() == files(DEPLOY_BUILD).keys()


def test_nothing_is_made_twice() -> None:
    again = run("make", "setup", "build")
    assert all("Nothing to be done" in line for line in again.stdout.splitlines()), again.stdout
