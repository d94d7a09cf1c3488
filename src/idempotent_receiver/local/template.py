"""Reads a SAM template's literal content, and edits it without changing any other text. Does not resolve intrinsics."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from yaml import MappingNode, ScalarNode, SequenceNode

    Node = MappingNode | ScalarNode | SequenceNode

PATHS = frozenset({"CodeUri", "DefinitionUri", "DefinitionS3Location", "TemplateURL"})
"""The properties that name the project's files and folders."""
FUNCTION, MAPPING, QUEUE = "AWS::Serverless::Function", "AWS::Lambda::EventSourceMapping", "AWS::SQS::Queue"
NAMES = {"AWS::DynamoDB::Table": "TableName", "AWS::Serverless::SimpleTable": "TableName", QUEUE: "QueueName"}
"""The properties that name tables and queues."""
PLAIN_TAGS = "tag:yaml.org,2002:"


class Edit(NamedTuple):
    """A replacement for the text between two positions."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Resource:
    """A resource in the template, with its logical id."""

    id: str
    node: "Node"

    @property
    def type(self) -> str | None:
        """The resource type."""
        return self.said("Type")

    def said(self, *path: str) -> str | None:
        """The plain text at this path, if any."""
        return node_text(at(self.node, *path))


@dataclass(frozen=True)
class Template:
    """A parsed template with its text. Raises ValueError if it is not a YAML mapping."""

    text: str
    _root: "Node" = field(init=False, repr=False)

    def __post_init__(self) -> None:
        import yaml  # noqa: PLC0415  # from the [local] extra, which other commands do not need

        try:
            root = yaml.compose(self.text, Loader=yaml.SafeLoader)
        except yaml.YAMLError as error:
            raise ValueError(f"the template cannot be read: {' '.join(str(error).split())}") from None
        if not isinstance(root, yaml.MappingNode):
            raise ValueError("the template cannot be read: it is not a YAML mapping")  # noqa: TRY004  # the text is wrong, not an argument's type
        object.__setattr__(self, "_root", root)

    @property
    def parameters(self) -> frozenset[str]:
        """The names of the template's parameters."""
        return frozenset(name for name, _ in event_entries(at(self._root, "Parameters")))

    @property
    def resources(self) -> list[Resource]:
        """The template's resources, except those in a loop (`Fn::ForEach`)."""
        return [Resource(id, node) for id, node in event_entries(at(self._root, "Resources")) if node.id == "mapping"]

    @property
    def consumers(self) -> list[str]:
        """The functions that consume a queue, as far as this text alone shows."""
        types = {each.id: each.type for each in self.resources}
        found: list[str | None] = []
        for each in self.resources:
            events = [event for _, event in event_entries(at(each.node, "Properties", "Events"))]
            if each.type == FUNCTION and any(node_text(at(event, "Type")) == "SQS" for event in events):
                found.append(each.id)
            if (
                each.type == MAPPING
                and types.get(name_in(at(each.node, "Properties", "EventSourceArn")) or "") == QUEUE
            ):
                found.append(name_in(at(each.node, "Properties", "FunctionName")))
        return [each for each in dict.fromkeys(found) if each in types]

    def code_of(self, function: Resource) -> str | None:
        """The path to a function's code, from the function or from Globals."""
        return function.said("Properties", "CodeUri") or node_text(at(self._root, "Globals", "Function", "CodeUri"))

    def setting(self, resource: Resource, name: str, value: str) -> Edit:
        """The edit that sets a resource's property, whether or not the property exists."""
        properties = at(resource.node, "Properties")
        if properties is None:
            return _entered(resource.node, "Properties", {name: value})
        found = at(properties, name)
        return _entered(properties, name, value) if found is None else self._replaced(found, value)

    def with_paths(self, new: Callable[[str, str], str | None]) -> "Template":
        """The template with new values for properties that name files. `new` is called with each property and its path;
        the path stays if it returns None.
        """

        def edits(node: "Node") -> Iterator[Edit]:
            for each in node.value if node.id == "sequence" else ():
                yield from edits(each)
            for name, value in event_entries(node):
                path = node_text(value)
                if name not in PATHS or path is None:
                    yield from edits(value)
                elif not re.match(r"\w+://", path) and (to := new(name, path)) is not None:
                    yield self._replaced(value, to)

        return self.edited(edits(self._root))

    def edited(self, edits: Iterable[Edit]) -> "Template":
        """The template with these edits, which must not overlap."""
        text = self.text
        for edit in sorted({*edits}, reverse=True):
            text = text[: edit.start] + edit.text + text[edit.end :]
        return Template(text)

    def _replaced(self, node: "Node", value: str) -> Edit:
        """The edit that replaces a node with a value, quoted if the node was."""
        start, end = node.start_mark.index, node.end_mark.index
        if node.id != "scalar":  # a block node extends over blank lines and comments to the next entry
            end = start + len(re.sub(r"(\s+(#[^\n]*)?)+\Z", "", self.text[start:end]))
        return Edit(start, end, json.dumps(value) if self.text[start] in "'\"" and value[0] != "{" else value)


def named_by_id(text: str) -> str:
    """The template with every table and queue named by its logical id, and nothing else changed.

    `sam local` resolves `!Ref Records` to the text `Records`, so the table gets that name here. A FIFO queue's name
    gets the required suffix. A queue whose FIFO setting depends on a condition keeps its name.

    Raises ValueError if the text is not a template.
    """
    template, edits = Template(text), []
    for each in template.resources:
        fifo = at(each.node, "Properties", "FifoQueue")
        said = node_text(fifo)
        if each.type in NAMES and (fifo is None or said is not None):
            ending = ".fifo" if said is not None and said.lower() == "true" else ""
            edits.append(template.setting(each, NAMES[each.type], each.id + ending))
    return template.edited(edits).text


ANY_QUEUE_ARN = re.compile(r"\barn:[\w-]+:sqs:[\w-]+:(\d{12}):([\w-]+)")


def queues_in(text: str, account: str, region: str) -> str:
    """A template's text, or a parameter's value, with this account and region in every queue ARN."""
    for elsewhere, name in ANY_QUEUE_ARN.findall(text):
        text = text.replace(f"/{elsewhere}/{name}", f"/{account}/{name}")  # in the queue's URL
    return ANY_QUEUE_ARN.sub(rf"arn:aws:sqs:{region}:{account}:\2", text)


def at(node: "Node | None", *path: str) -> "Node | None":
    """The node at `path` below `node`, if any."""
    for name in path:
        node = dict(event_entries(node)).get(name)
    return node


def event_entries(node: "Node | None") -> Iterator[tuple[str, "Node"]]:
    """A mapping's entries by name; empty for anything else."""
    if node is not None and node.id == "mapping":
        yield from ((key.value, value) for key, value in node.value if key.id == "scalar")


def node_text(node: "Node | None") -> str | None:
    """A node's plain text; None for an intrinsic."""
    return str(node.value) if node is not None and node.id == "scalar" and node.tag.startswith(PLAIN_TAGS) else None


def name_in(node: "Node | None") -> str | None:
    """The logical id that a reference names: `!Ref Queue`, `!GetAtt Queue.Arn`, or their mapping forms."""
    if node is None:
        return None
    if node.id == "mapping":
        references = [value for name, value in event_entries(node) if name in ("Ref", "Fn::GetAtt")]
        return name_in(references[0]) if references else None
    if node.id == "sequence":
        return node_text(node.value[0]) if node.value else None
    return str(node.value).partition(".")[0]


def _entered(mapping: "Node", name: str, value: str | dict[str, str]) -> Edit:
    """The edit that inserts an entry at the start of a mapping, in JSON style if the mapping uses it."""
    is_json = bool(mapping.value) and getattr(mapping.value[0][0], "style", None) == '"'
    if is_json:
        entry = f"{json.dumps(name)}: {json.dumps(value)}"
    else:
        inner = value if isinstance(value, str) else "".join(f"{{{key}: {each}}}" for key, each in value.items())
        entry = f"{name}: {inner}"
    if getattr(mapping, "flow_style", False):
        start = mapping.start_mark.index + 1
        return Edit(start, start, f"{entry}, " if mapping.value else entry)
    first = mapping.value[0][0].start_mark
    return Edit(first.index, first.index, f"{entry}\n{' ' * first.column}")
