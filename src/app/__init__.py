"""The deployed application: the composition root, and the business code that a user replaces.

A package that was built for one runtime of Lambda does not run on another, and CloudFormation deploys it all the same.
It then says so here, where Lambda would name the first compiled module that it cannot find.
"""

import os
import sys
from pathlib import Path

_NOTE = Path(__file__).with_name("built-for")
"""What the Makefile built the package for; a build for the machine at hand has no such note."""

if _NOTE.exists():
    _built_for = _NOTE.read_text().strip()
    _machine = os.uname().machine.replace("aarch64", "arm64")
    _here = f"python{sys.version_info.major}.{sys.version_info.minor}-{_machine}"
    if _built_for != _here:
        raise ImportError(
            f"this package was built for {_built_for} and runs on {_here}:"
            " give `sam build` and `sam deploy` the same Runtime and Architecture, as `make deploy` does"
        )
