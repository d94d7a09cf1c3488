"""`receiver work` with handlers whose module is patched, in real processes: what its refusals advise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.test_work import Place

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.deployed import Aws

STRICT = (
    "from aws_xray_sdk.core import patch_all, xray_recorder\n"
    "xray_recorder.configure(context_missing='RUNTIME_ERROR')\n"
    "patch_all()"
)


@pytest.mark.parametrize(
    ("patches", "variables"),
    [
        ("from gevent import monkey; monkey.patch_all(thread=False)", {}),
        (STRICT, {"AWS_XRAY_CONTEXT_MISSING": "LOG_ERROR"}),
    ],
    ids=["gevent", "X-Ray"],
)
def test_the_remedy_for_a_patch_that_is_refused_handles_messages(
    aws: Aws, tmp_path: Path, patches: str, variables: dict[str, str]
) -> None:
    """Each of these advices is what `receiver work` says when it ends."""
    place = Place(aws, tmp_path)
    place.more = {"PATCHES": patches, **variables}
    place.send("a")
    place.send("b")

    with place.worker(handler="worker_patched:handle"):
        place.wait_for(lambda: {run.name for run in place.runs} == {"a", "b"}, 30)
