"""The deployed application: the composition root, and the business code that a user replaces.

CloudFormation deploys a package even if it was built for another Lambda runtime. Importing such a package fails here
with a clear message; otherwise Lambda would only name the first compiled module that it cannot find.
"""

import os
import sys
from pathlib import Path

_NOTE = Path(__file__).with_name("built-for")
"""Names the runtime and architecture that the Makefile built for. A build for the local machine has no such file."""

if _NOTE.exists():
    _built_for = _NOTE.read_text().strip()
    _machine = os.uname().machine.replace("aarch64", "arm64")
    _here = f"python{sys.version_info.major}.{sys.version_info.minor}-{_machine}"
    if _built_for != _here:
        raise ImportError(
            f"this package was built for {_built_for} and runs on {_here}:"
            " run `sam build` again, which reads Runtime and Architectures in the template, then `sam deploy`"
        )
