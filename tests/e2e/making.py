"""How tests run make: without the state of the make that runs them, and which Pythons it finds."""

from __future__ import annotations

import os
import subprocess

from local.cloud import ROOT

# `make test` hands its own state down to any make that a test starts.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKELEVEL", "MFLAGS"}}


def interpreter(runtime: str) -> str | None:
    """The Python of that version that the build takes for its bytecode, if one runs here."""
    asked = "include Makefile\nasked: ; @echo $(call installed,$(RUNTIME))\n"
    said = subprocess.run(
        ["make", "--silent", "--file", "-", "asked", f"RUNTIME={runtime}"],
        cwd=ROOT,
        env=ENVIRONMENT,
        input=asked,
        capture_output=True,
        text=True,
        check=True,
    )
    return said.stdout.strip() or None
