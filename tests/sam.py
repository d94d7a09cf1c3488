"""What CloudFormation makes of SAM's resources, by SAM's own translator; and what depends on what in it."""

from __future__ import annotations

import json
import re
import subprocess
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any

from harness.cloud import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

EXPAND = """
import json, os, re, sys
os.environ["AWS_DEFAULT_REGION"] = "us-east-1"
from samcli.yamlhelper import yaml_parse
from samtranslator.translator.transform import transform
managed_policies = type("NoPolicies", (), {"load": lambda self: {}})()
def made(text):
    template = yaml_parse(re.sub(r"(CodeUri): (\\.\\./)?src/", r"\\1: s3://code/key", text))
    return transform(template, json.loads(sys.argv[1]), managed_policies)["Resources"]
print(json.dumps([made(text) for text in json.load(sys.stdin)]))
"""


def expanded(*texts: str, **parameters: str) -> list[dict[str, Any]]:
    """Each template's resources after the transform. Where SAM needs a parameter's value, it takes these."""
    command = [ROOT / ".tools/sam/bin/python", "-c", EXPAND, json.dumps(parameters)]
    done = subprocess.run(command, input=json.dumps(texts), capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


def dependencies(resources: dict[str, Any]) -> dict[str, set[str]]:
    """The resources that each refers to or waits for, wherever in it: in an UpdatePolicy, too."""
    return {name: {*_referred(each)} & resources.keys() for name, each in resources.items()}


def _referred(node: Any) -> Iterator[str]:
    match node:
        case {"Ref": str(name)} | {"Fn::GetAtt": [str(name), *_]}:
            yield name
        case {"Fn::GetAtt": str(name)}:
            yield name.partition(".")[0]
        case {"Fn::Sub": [str(text), dict(given)]}:
            yield from (name for name in _in_text(text) if name not in given)
            yield from _referred(given)
        case {"Fn::Sub": str(text)}:
            yield from _in_text(text)
        case dict():
            waited_for = node.get("DependsOn", [])
            yield from [waited_for] if isinstance(waited_for, str) else waited_for
            for part in node.values():
                yield from _referred(part)
        case list():
            for part in node:
                yield from _referred(part)


def _in_text(text: str) -> list[str]:
    return re.findall(r"\$\{(\w+)[.}]", text)


def cycle(depends: dict[str, set[str]]) -> list[str]:
    """Resources of which each depends on the next, and the last is the first; empty if there are none."""
    try:
        TopologicalSorter(depends).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []
