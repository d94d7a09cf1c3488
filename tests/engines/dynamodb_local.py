"""AWS's own DynamoDB Local as a test engine: fetched with Maven, run on loopback, and always stopped.

It is the closest substitute for what DynamoDB accepts and answers. It requires Java and Maven, so it may be
missing on a developer's machine; `why_unavailable` then gives the reason for a skip. Every access key (letters and
digits only) has tables of its own, and the database is in memory, so nothing is kept.

It has the DynamoDB Local License Agreement, which is in its jar: for personal use, with an AWS account, and not for
redistribution. So everyone who runs the tests fetches it themselves, its folder is ignored by git, no build or release
contains any of it, and everything works without it.

The server always binds every interface. Java's security manager, enabled here with
`loopback.policy`, makes it refuse connections from elsewhere than loopback, and keeps it from calling out. It was
removed in Java 24, hence the upper limit on the version.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
POM: Final = HERE / "pom.xml"
POLICY: Final = HERE / "loopback.policy"

MAIN_CLASS: Final = "software.amazon.dynamodb.services.local.main.ServerRunner"
JAVA_VERSIONS: Final = range(17, 24)
"""DynamoDB Local needs 17; the security manager that confines it to loopback was removed in 24."""

FETCH_SECONDS: Final = 300
START_SECONDS: Final = 30
STOP_SECONDS: Final = 5


class DynamoDBLocalError(RuntimeError):
    """DynamoDB Local could not be fetched or did not start; the text ends with what the program printed."""


def why_unavailable(cache: Path) -> str | None:
    """Why DynamoDB Local cannot run here, as a sentence; None if it can.

    Checks only the machine, not the network: `jars` raises if Maven cannot reach its repository.
    """
    system, machine = platform.system(), platform.machine()
    if (system, machine) not in {("Linux", "x86_64"), ("Darwin", "x86_64")}:
        return f"DynamoDB Local: Maven Central has no native SQLite for {system} on {machine}"
    if (java := shutil.which("java")) is None:
        return "DynamoDB Local: no `java` on the PATH (17 to 23 required)"
    if (version := _java_version(java)) not in JAVA_VERSIONS:
        return f"DynamoDB Local: `java` is version {version or 'unknown'}, 17 to 23 required"
    if not _folder(cache).is_dir() and shutil.which("mvn") is None:
        return f"DynamoDB Local: not in {cache} yet, and no `mvn` on the PATH to fetch it"
    return None


def jars(cache: Path) -> Path:
    """The folder with DynamoDB Local's jars and native libraries, fetched into `cache` on first use (48 MB).

    The folder is named after the pom's content, so a changed version is fetched anew. It appears complete or not at
    all, and several test processes may call this at once.
    """
    folder = _folder(cache)
    if folder.is_dir():
        return folder
    mvn = shutil.which("mvn")
    if mvn is None:
        raise DynamoDBLocalError("no `mvn` on the PATH to fetch DynamoDB Local with")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=cache) as temporary:
        fetched = Path(temporary) / "jars"
        command = [
            mvn, "--batch-mode", "--no-transfer-progress", "--quiet", f"--file={POM}",
            "dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={fetched}",
        ]  # fmt: skip
        quiet: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        try:
            done = subprocess.run(command, **quiet, text=True, timeout=FETCH_SECONDS, check=False)
        except subprocess.TimeoutExpired as error:
            raise DynamoDBLocalError(f"Maven did not finish within {FETCH_SECONDS} s") from error
        if done.returncode != 0:
            raise DynamoDBLocalError(f"Maven could not fetch DynamoDB Local:\n{done.stdout[-2000:]}")
        try:
            fetched.rename(folder)
        except OSError:
            if not folder.is_dir():  # else: another process was faster, and its copy is as good
                raise
    return folder


@contextlib.contextmanager
def start(jars: Path) -> Iterator[str]:
    """Run DynamoDB Local, in memory, for the length of the block; gives its endpoint's URL.

    It is ready once it has listed the tables of an empty database, so its native library is loaded too.
    """
    java = shutil.which("java")
    if java is None:
        raise DynamoDBLocalError("no `java` on the PATH")
    with tempfile.TemporaryDirectory(prefix="dynamodb-local-") as temporary:
        log = Path(temporary) / "log"
        port = _free_port()
        endpoint_url = f"http://127.0.0.1:{port}"
        command = [
            java, "-Djava.security.manager", f"-Djava.security.policy=={POLICY}",
            "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            f"-Djava.library.path={jars}", f"-Djava.io.tmpdir={temporary}",
            "-classpath", f"{jars}/*", MAIN_CLASS, "-inMemory", "-disableTelemetry", "-port", str(port),
        ]  # fmt: skip
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=temporary,
                env={"PATH": os.environ.get("PATH", os.defpath), "HOME": temporary, "DDB_LOCAL_TELEMETRY": "0"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            _wait_until_ready(process, endpoint_url, log)
            yield endpoint_url
        finally:
            _stop(process)


def _folder(cache: Path) -> Path:
    return cache / f"dynamodb-local-{hashlib.sha256(POM.read_bytes()).hexdigest()[:12]}"


def _java_version(java: str) -> int | None:
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(\d+)', told)
    return int(found.group(1)) if found else None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_ready(process: subprocess.Popen[bytes], endpoint_url: str, log: Path) -> None:
    deadline, ready = time.monotonic() + START_SECONDS, False
    while not ready:
        ready = _answers(endpoint_url)
        if process.poll() is not None:  # perhaps the port was taken, and another program answered
            raise DynamoDBLocalError(f"DynamoDB Local exited with {process.returncode}:\n{_tail(log)}")
        if time.monotonic() > deadline:
            raise DynamoDBLocalError(f"DynamoDB Local was not ready after {START_SECONDS} s:\n{_tail(log)}")
        time.sleep(0 if ready else 0.05)


def _answers(endpoint_url: str) -> bool:
    """Whether it lists tables. The credential is read for its access key and region, never verified."""
    credential = "Credential=ready/20200101/us-east-1/dynamodb/aws4_request"
    headers = {
        "Content-Type": "application/x-amz-json-1.0",
        "X-Amz-Target": "DynamoDB_20120810.ListTables",
        "Authorization": f"AWS4-HMAC-SHA256 {credential}, SignedHeaders=host, Signature=0",
    }
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(urllib.request.Request(endpoint_url, b"{}", headers), timeout=5) as response:
            return bytes(response.read()).startswith(b'{"TableNames":')
    except OSError:
        return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the server's whole session, first with SIGTERM, then with SIGKILL. It leads the session, so pid = group."""
    if process.poll() is not None:  # already reaped: its pid may belong to another process by now
        return
    for ending in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, ending)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=STOP_SECONDS)
            return


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:]
