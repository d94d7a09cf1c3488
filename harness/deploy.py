"""Put template.yaml onto a local cloud, with the function's code from a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.cloud import ROOT
from harness.edits import edited, with_values
from idempotent_receiver.local.deployment import DeployError, Stack, create, packaged, upload
from idempotent_receiver.local.template import named_by_id

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from harness.cloud import Cloud

TEMPLATE = ROOT / "template.yaml"
HOST_BUILD = ROOT / ".build" / "host"


def deploy(
    cloud: Cloud,
    *,
    name: str = "receiver",
    code: Path = HOST_BUILD,
    overlay: Mapping[str, bytes] | None = None,
    template: str | None = None,
    edits: Sequence[str] = (),
    values: Mapping[str, object] | None = None,
    parameters: Mapping[str, str] | None = None,
    named: bool = False,
) -> Stack:
    """Deploy template.yaml, or this text in its place, with the code in the folder, and return once everything is made.

    `edits` are those that the documents describe, by their headings; `values` are new values of properties. `overlay`
    has files, by their path in the folder, that are put in place of the folder's or beside them. The architecture is
    left alone: the local cloud runs the code on this machine, whatever the template says of it. `named`: whether tables
    and queues have their logical ids for names, as `sam local` has them.
    """
    text = TEMPLATE.read_text() if template is None else template
    text = with_values(edited(text, *edits), **values or {})
    text = named_by_id(text) if named else text
    code_uri = code_uri_of(cloud, code, overlay)
    return create(cloud, name, packaged(cloud, text, ROOT, lambda _path: code_uri), parameters or {})


def code_uri_of(cloud: Cloud, code: Path, overlay: Mapping[str, bytes] | None = None) -> str:
    """Where the code of all functions is, once it is uploaded: they share it."""
    if not code.is_dir():
        raise DeployError(f"there is no built function at {code}: run `make build`")
    return upload(cloud, code, overlay)
