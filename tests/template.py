"""template.yaml as CloudFormation evaluates it for given parameters: conditions decided, references resolved."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from cfnlint.decode import cfn_yaml

from local.cloud import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TEMPLATE = ROOT / "template.yaml"
NO_VALUE = object()


@cache
def load(path: Path = TEMPLATE) -> dict[str, Any]:
    """Return the template with its short forms expanded and nothing else evaluated. It is shared: do not change it."""
    return cfn_yaml.load(str(path))


@dataclass(frozen=True)
class Rendering:
    """One choice of parameters."""

    template: Mapping[str, Any]
    values: Mapping[str, str]

    def rendered(self) -> dict[str, Any]:
        """Return the template with parameters, conditions, mappings and rules evaluated and removed."""
        return {
            "AWSTemplateFormatVersion": self.template["AWSTemplateFormatVersion"],
            "Transform": self.template["Transform"],
            "Resources": self._chosen("Resources"),
            "Outputs": self._chosen("Outputs"),
        }

    def _chosen(self, section: str) -> dict[str, Any]:
        return {
            name: {key: self.resolve(value) for key, value in part.items() if key != "Condition"}
            for name, part in self.template[section].items()
            if "Condition" not in part or self.holds({"Condition": part["Condition"]})
        }

    def holds(self, condition: Any) -> bool:
        """Decide a condition."""
        ((function, arguments),) = condition.items()
        match function:
            case "Condition":
                return self.holds(self.template["Conditions"][arguments])
            case "Fn::Equals":
                left, right = map(self.resolve, arguments)
                return str(left) == str(right)
            case "Fn::Not":
                return not self.holds(arguments[0])
            case "Fn::And":
                return all(map(self.holds, arguments))
            case "Fn::Or":
                return any(map(self.holds, arguments))
            case "Fn::Contains":
                return str(self.resolve(arguments[1])) in arguments[0]
        raise ValueError(f"a condition of an unknown kind: {function}")

    def resolve(self, value: Any) -> Any:
        """Return a value with parameters, choices and mappings resolved; what only AWS knows stays."""
        if isinstance(value, list):
            return [each for each in map(self.resolve, value) if each is not NO_VALUE]
        if not isinstance(value, dict):
            return value
        match value:
            case {"Ref": "AWS::NoValue"}:
                return NO_VALUE
            case {"Ref": name} if name in self.values:
                return self.values[name]
            case {"Fn::If": [condition, then, otherwise]}:
                return self.resolve(then if self.holds({"Condition": condition}) else otherwise)
            case {"Fn::FindInMap": [mapping, first, second]}:
                return self.template["Mappings"][mapping][self.resolve(first)][self.resolve(second)]
            case {"Fn::Split": [separator, text]}:
                return self.resolve(text).split(separator)
            case {"Fn::Select": [index, choices]}:
                return self.resolve(choices)[int(index)]
            case {"Fn::Sub": str(text)}:
                return {"Fn::Sub": self._filled(text, self.values)}
            case {"Fn::Sub": [text, given]}:
                known = {name: self.resolve(each) for name, each in given.items()}
                return {"Fn::Sub": [self._filled(text, self.values), known]}
        resolved = {key: self.resolve(each) for key, each in value.items()}
        return {key: each for key, each in resolved.items() if each is not NO_VALUE}

    @staticmethod
    def _filled(text: str, values: Mapping[str, str]) -> str:
        return re.sub(r"\$\{([^}]+)\}", lambda found: values.get(found[1], found[0]), text)


def text_of(value: Any) -> str:
    """Return a resolved value as text, with a name in place of each value that only AWS knows."""
    match value:
        case {"Fn::Sub": [text, given]}:
            known = {name: text_of(each) for name, each in given.items()}
            return re.sub(r"\$\{([^}]+)\}", lambda found: known.get(found[1], found[1]), text)
        case {"Fn::Sub": text}:
            return re.sub(r"\$\{([^}]+)\}", r"\1", text)
        case {"Ref": name}:
            return str(name)
        case {"Fn::GetAtt": [name, attribute]}:
            return f"{name}.{attribute}"
    return str(value)


def rendering(template: Mapping[str, Any] | None = None, /, **parameters: str) -> Rendering:
    """Choose these parameters, and the template's defaults for the others."""
    template = load() if template is None else template
    defaults = {name: str(each["Default"]) for name, each in template["Parameters"].items()}
    unknown = parameters.keys() - defaults.keys()
    if unknown:
        raise ValueError(f"the template has no parameters {sorted(unknown)}")
    return Rendering(template, {**defaults, **parameters})
