"""Deploys template.yaml to a local cloud, with the function's code from a folder."""

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
    """Deploy template.yaml, or the text given instead, with the code in the folder, and return once everything exists.

    `edits` are documented edits, by their headings; `values` are new property values. `overlay` maps paths in the
    folder to files that replace or supplement the folder's. The architecture is unchanged: the local cloud runs the
    code on this machine regardless. `named`: whether tables and queues are named by their logical ids, as under `sam
    local`.
    """
    text = TEMPLATE.read_text() if template is None else template
    text = with_values(edited(text, *edits), **values or {})
    text = named_by_id(text) if named else text
    code_uri = code_uri_of(cloud, code, overlay)
    return create(cloud, name, packaged(cloud, text, ROOT, lambda _path: code_uri), parameters or {})


def code_uri_of(cloud: Cloud, code: Path, overlay: Mapping[str, bytes] | None = None) -> str:
    """The address of all functions' code, uploaded once because they share it."""
    if not code.is_dir():
        raise DeployError(f"no built function at {code}: run `make build`")
    return upload(cloud, code, overlay)
