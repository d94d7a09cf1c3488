"""A template as CloudFormation evaluates it for given parameters, with its nested stacks as part of it."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

from cfnlint.decode import cfn_yaml

from harness.cloud import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TEMPLATE = ROOT / "template.yaml"
WATCH = ROOT / "watch.yaml"
NESTED = "AWS::CloudFormation::Stack"


class Absent:
    """What `AWS::NoValue` becomes: nothing."""


@cache
def load(path: Path = TEMPLATE) -> dict[str, Any]:
    """Return the template with its short forms expanded and nothing else evaluated. It is shared: do not change it."""
    return parsed(path.read_text())


@cache
def parsed(text: str) -> dict[str, Any]:
    """The same of a template's text."""
    return dict(cfn_yaml.loads(text))


class Rendering:
    """The template with these parameters, as CloudFormation sees it after conditions.

    A nested stack's resources stand beside its parent's, and what the parent takes from its outputs is what those are.
    Other references between resources stay as they are.
    """

    def __init__(self, template: Mapping[str, Any], parameters: Mapping[str, Any]) -> None:
        unknown = parameters.keys() - template["Parameters"].keys()
        if unknown:
            raise ValueError(f"the template has no parameters {sorted(unknown)}")
        self.template = template
        self.values = {name: parameters.get(name, each.get("Default")) for name, each in template["Parameters"].items()}
        missing = [name for name, value in self.values.items() if value is None]
        if missing:
            raise ValueError(f"the template needs its parameters {missing}")

    def rendered(self) -> dict[str, Any]:
        """Return the template with parameters, conditions and rules evaluated and removed."""
        return merged(self.alone())

    def alone(self) -> dict[str, Any]:
        """The same with its nested stacks as they stand."""
        kept = {name: self.template[name] for name in ("AWSTemplateFormatVersion", "Transform", "Description")
                if name in self.template}  # fmt: skip
        if "Globals" in self.template:
            kept["Globals"] = self.value(self.template["Globals"])
        for section in ("Resources", "Outputs"):
            entries = self.template[section].items()
            wanted = {name: entry for name, entry in entries if self.holds(entry.get("Condition"))}
            kept[section] = {
                name: self.value({key: part for key, part in entry.items() if key != "Condition"})
                for name, entry in wanted.items()
            }
        return kept

    def holds(self, condition: str | Mapping[str, Any] | None) -> bool:
        """Decide a condition, given by its name or in full."""
        if condition is None:
            return True
        return self.true({"Condition": condition} if isinstance(condition, str) else condition)

    def true(self, node: Any) -> bool:
        match node:
            case {"Condition": condition}:
                return self.true(self.template["Conditions"][condition])
            case {"Fn::Equals": [left, right]}:
                return str(self.value(left)) == str(self.value(right))
            case {"Fn::Not": [condition]}:
                return not self.true(condition)
            case {"Fn::And": conditions}:
                return all(self.true(condition) for condition in conditions)
            case {"Fn::Or": conditions}:
                return any(self.true(condition) for condition in conditions)
            case {"Fn::Contains": [choices, value]}:
                return str(self.value(value)) in choices
        raise KeyError(f"{node} is no condition")

    def value(self, node: Any) -> Any:
        match node:
            case {"Ref": "AWS::NoValue"}:
                return Absent
            case {"Ref": name} if name in self.values:
                return self.values[name]
            case {"Fn::If": [condition, then, otherwise]}:
                return self.value(then if self.holds(condition) else otherwise)
            case {"Fn::Sub": [str(text), dict(given)]}:
                return substituted(text, self.values | {name: self.value(each) for name, each in given.items()})
            case {"Fn::Sub": str(text)}:
                return substituted(text, self.values)
            case {"Fn::Split": [separator, text]} if (parts := split(self.value(text), separator)) is not None:
                return parts
            case {"Fn::Select": [place, choices]} if isinstance(found := self.value(choices), list):
                return found[int(place)]
            case dict():
                parts = {key: self.value(part) for key, part in node.items()}
                return {key: part for key, part in parts.items() if part is not Absent}
            case list():
                return [part for part in map(self.value, node) if part is not Absent]
        return node


def split(node: Any, separator: str) -> list[Any] | None:
    """The parts of a text, with what only AWS knows in them; None if that may hold the separator."""
    match node, separator:
        case str(text), _:
            return text.split(separator)
        case {"Fn::Sub": str(text)}, "/":
            return [{"Fn::Sub": part} if "${" in part else part for part in text.split("/")]
        case {"Ref": "AWS::StackName"}, "/":
            return [node]
        case {"Fn::GetAtt": [queue, "Arn"]}, ":":
            return [*("arn", "aws", "sqs", "us-east-1", "123456789012"), {"Fn::GetAtt": [queue, "QueueName"]}]
    return None


def substituted(text: str, given: Mapping[str, Any]) -> Any:
    """Fill in what is known, and keep what only AWS knows."""
    plain = {name: str(each) for name, each in given.items() if not isinstance(each, dict)}
    plain |= {name: f"${{{each['Ref']}}}" for name, each in given.items() if isinstance(each, dict) and "Ref" in each}
    text = re.sub(r"\$\{([^}!]+)\}", lambda found: plain.get(found[1], found[0]), text)
    left = {name: each for name, each in given.items() if name not in plain and f"${{{name}}}" in text}
    if "${" not in text:
        return text
    return {"Fn::Sub": [text, left] if left else text}


def merged(rendered: dict[str, Any]) -> dict[str, Any]:
    """The rendered template with the nested stacks' resources in place of the stacks."""
    nested = {
        name: rendering(load(ROOT / each["Properties"]["TemplateURL"]), **each["Properties"]["Parameters"]).rendered()
        for name, each in rendered["Resources"].items()
        if each["Type"] == NESTED
    }
    own = {
        section: {name: linked(each, nested) for name, each in rendered[section].items() if name not in nested}
        for section in ("Resources", "Outputs")
    }
    made = [*(each["Resources"] for each in nested.values()), own["Resources"]]
    together = {name: each for some in made for name, each in some.items()}
    if len(together) < sum(map(len, made)):
        raise ValueError("a nested stack and another one have a resource of the same name")
    return rendered | own | {"Resources": together}


def linked(node: Any, nested: Mapping[str, Any]) -> Any:
    """Replace what is taken from a nested stack's outputs by what they are."""
    match node:
        case {"Fn::GetAtt": [name, str(attribute)]} if name in nested:
            return nested[name]["Outputs"][attribute.removeprefix("Outputs.")]["Value"]
        case dict():
            return {key: linked(part, nested) for key, part in node.items()}
        case list():
            return [linked(part, nested) for part in node]
    return node


def text_of(node: Any) -> str:
    """Its text, with a name in place of each value that only a deployment knows."""
    match node:
        case {"Fn::Sub": [text, dict(given)]}:
            return re.sub(r"\$\{([^}]+)\}", lambda found: text_of(given.get(found[1], found[1])), text)
        case {"Fn::Sub": str(text)}:
            return re.sub(r"\$\{([^}]+)\}", r"\1", text)
        case {"Fn::GetAtt": parts}:
            return ".".join(parts) if isinstance(parts, list) else str(parts)
        case {"Ref": name}:
            return str(name)
    return str(node)


def watched_by(alarm: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The metrics of an alarm: its own one, or those of its expression."""
    if "Metrics" not in alarm:
        return [dict(alarm)]
    return [each["MetricStat"]["Metric"] for each in alarm["Metrics"] if "MetricStat" in each]


def rendering(template: Mapping[str, Any] | None = None, /, **parameters: Any) -> Rendering:
    """Choose these parameters, and the template's defaults for the others."""
    return Rendering(load() if template is None else template, parameters)
