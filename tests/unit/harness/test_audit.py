"""Licences and vulnerabilities are checked, or it is said that they were not."""

from __future__ import annotations

import json
import threading
import tomllib
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from harness import audit
from harness.audit import FOR_DEVELOPMENT, PERMISSIVE, allowed, bad_licences
from harness.cloud import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

NOWHERE = "http://127.0.0.1:9"


def lock() -> dict[str, Any]:
    return tomllib.loads((ROOT / "uv.lock").read_text())


@contextmanager
def osv(vulnerable: str) -> Iterator[str]:
    """A server that knows of one vulnerable package."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            queries = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
            hits = [{"vulns": [{"id": "PYSEC-1"}]} if each["package"]["name"] == vulnerable else {} for each in queries]
            body = json.dumps({"results": hits}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def test_every_installed_package_has_a_licence_that_is_on_the_list() -> None:
    assert bad_licences(lock()) == []


@pytest.mark.parametrize(
    ("expression", "verdict"),
    [
        ("MIT", True),
        ("Apache-2.0 OR GPL-3.0-only", True),
        ("Apache-2.0 AND GPL-3.0-only", False),
        ("(MIT) AND PSF-2.0", True),
        ("MPL-2.0", False),
        ("AGPL-3.0-only", False),
        ("no licence named", False),
    ],
)
def test_an_expression_is_allowed_if_it_can_be_met(expression: str, verdict: bool) -> None:
    assert allowed(expression, PERMISSIVE) is verdict
    assert allowed("MPL-2.0", FOR_DEVELOPMENT)


def test_a_known_vulnerability_fails(capsys: pytest.CaptureFixture[str]) -> None:
    with osv("pydantic") as url:
        assert audit.main(url) == 1
    assert "known vulnerability: pydantic" in capsys.readouterr().out


def test_what_is_old_on_purpose_and_only_runs_in_tests_is_not_looked_up() -> None:
    with osv("localstack-core") as url:
        assert audit.main(url) == 0


def test_without_a_network_it_says_aloud_what_was_not_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.main(NOWHERE) == 0
    assert capsys.readouterr().out.startswith("NOT CHECKED for known vulnerabilities")
