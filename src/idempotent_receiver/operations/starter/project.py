"""What is in a new project: its files, as the operator's choices make them. Nothing is written here."""

import json
import re
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

ORDERS = (("alice", 1250), ("alice", 750), ("bob", 300))
"""Customer and cents of each order in the events: the first is alone in its event, then all are in one."""

TEMPLATES = {
    "handler.py": "src/{package}/handler.py",
    "template.yaml": "template.yaml",
    "samconfig.toml": "samconfig.toml",
    "Makefile": "Makefile",
    "README.md": "README.md",
    "pyproject.toml": "pyproject.toml",
    "requirements.txt": "requirements.txt",
    "requirements-dev.txt": "requirements-dev.txt",
    "gitignore": ".gitignore",
    "conftest.py": "tests/conftest.py",
    "test_handler.py": "tests/test_handler.py",
}
"""Where each template's file goes."""

CONTAINER_TEMPLATES = {"Dockerfile": "Dockerfile", "dockerignore": ".dockerignore"}
"""The same of those that a project has only with an image."""

CONTAINER = """\

## In a container

The image runs the same function outside Lambda, for up to 12 hours a message. `variables.env` has the variables of the
function in `template.yaml`, a region, and credentials that may do what the function's role may:

```sh
docker build -t {name} .
docker run --rm --init --env-file variables.env {name} QUEUE_URL {package}.handler:lambda_handler
```

Use the queue and the tables of a deployed stack. Lambda and containers may read one queue at the same time.
`docker run --rm {name} --help` lists the options.
"""

OWN_QUEUE = """\
QueueArn:
  Description: The queue to consume. If empty, one is made here, as for `make local`.
  Type: String
  Default: {arn}
DeadLetterQueueArn:
  Description: The dead-letter queue of that queue. While this is empty, no alarm watches the dead letters.
  Type: String
  Default: ''
"""

COMPONENT = "consumer.yaml"
_HERE = files("idempotent_receiver.operations.starter")


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """What the operator chose. `key` is a strategy and its argument; `message_id` has none."""

    name: str
    fifo: bool = False
    asynchronous: bool = False
    key: tuple[str, str] = ("message_id", "")
    queue_arn: str | None = None
    container: bool = False

    @property
    def package(self) -> str:
        """The Python package of its handler."""
        return self.name.replace("-", "_")

    @property
    def stack(self) -> str:
        """The name of its stack, in which CloudFormation takes no underscore."""
        return self.name.replace("_", "-")


def contents(project: Project, *, requirement: str, requirement_dev: str) -> dict[str, str]:
    """The project's text files by their paths. It requires the library as these lines of pip's say."""
    cli = re.sub(r"\[[\w,]+\]", "[cli]", requirement_dev, count=1)
    values = {
        **_values(project),
        "requirement": requirement,
        "requirement_dev": requirement_dev,
        "requirement_cli": cli,
    }
    made = {
        path.format(package=project.package): filled((_HERE / "files" / f"{name}.in").read_text(), values)
        for name, path in (TEMPLATES | (CONTAINER_TEMPLATES if project.container else {})).items()
    }
    for name, numbers in (("order", [0]), ("orders", range(len(ORDERS)))):
        event = {"Records": [record(project, number) for number in numbers]}
        made[f"events/{name}.json"] = json.dumps(event, indent=2) + "\n"
    return {**made, COMPONENT: component()}


def component() -> str:
    """The template of all that a consumer needs around its function."""
    return (_HERE / COMPONENT).read_text()


def filled(text: str, values: dict[str, str]) -> str:
    """The text with each `<<name>>` replaced. One alone on its line gives as many lines as its value has."""

    def lines(found: re.Match[str]) -> str:
        return "".join(f"{found[1]}{line}\n" for line in values[found[2]].splitlines())

    text = re.sub(r"(?m)^( *)<<(\w+)>>\n", lines, text)
    return re.sub(r"<<(\w+)>>", lambda found: values[found[1]], text)


def _values(project: Project) -> dict[str, str]:
    strategy, argument = project.key
    own_key = strategy != "message_id"
    parameters = {
        "Fifo": "'true'" if project.fifo else None,
        "QueueArn": "!Ref QueueArn" if project.queue_arn else None,
        "DeadLetterQueueArn": "!Ref DeadLetterQueueArn" if project.queue_arn else None,
        "KeyStrategy": f"{strategy}:{argument}" if own_key else None,
        "Namespace": project.name if own_key else None,
    }
    batches = "BatchSize: 10" if project.fifo else "BatchSize: 25\nMaximumBatchingWindowInSeconds: 1"
    return {
        "name": project.name,
        "package": project.package,
        "stack": project.stack,
        "key_import": f"{strategy}, " if own_key else "",
        "key_argument": f'key={strategy}("{argument}"), ' if own_key else "",
        "namespace_argument": f', "{project.name}"' if own_key else "",
        "template_parameters": OWN_QUEUE.format(arn=project.queue_arn) if project.queue_arn else "",
        "local_options": " --parameter QueueArn=" if project.queue_arn else "",
        "async": "async " if project.asynchronous else "",
        "parameters": "\n".join(f"{name}: {value}" for name, value in parameters.items() if value is not None),
        "batches": batches,
        "sending": _sending(project),
        "container": CONTAINER.format(name=project.name, package=project.package) if project.container else "",
        "body": record(project, 0)["body"],
    }


def _sending(project: Project) -> str:
    """What `aws sqs send-message` needs besides the body."""
    options = ["--message-group-id alice --message-deduplication-id 1"] if project.fifo else []
    if project.key[0] == "message_attribute":
        options.append(f"--message-attributes '{project.key[1]}={{DataType=String,StringValue=order-1}}'")
    return "".join(f"{option} " for option in options)


def record(project: Project, number: int) -> dict[str, Any]:
    """A message as Lambda hands it over; its key is `order-1` or the like, wherever the key comes from."""
    customer, cents = ORDERS[number]
    (strategy, argument), order = project.key, f"order-{number + 1}"
    body: dict[str, Any] = {"customer": customer, "cents": cents}
    body = {**nested(argument.split("."), order), **body} if strategy == "body_field" else {"order_id": order, **body}
    attribute = {"stringValue": order, "dataType": "String"}
    group = {"MessageGroupId": customer, "MessageDeduplicationId": order, "SequenceNumber": f"{number + 1:020}"}
    return {
        "messageId": f"5f2c1d64-0001-4000-8000-{number + 1:012}",
        "receiptHandle": f"handle-{number + 1}",
        "body": json.dumps(body),
        "attributes": {
            "ApproximateReceiveCount": "1",
            "SentTimestamp": "1800000000000",
            "ApproximateFirstReceiveTimestamp": "1800000000001",
            **(group if project.fifo else {}),
        },
        "messageAttributes": {argument: attribute} if strategy == "message_attribute" else {},
        "eventSource": "aws:sqs",
        "eventSourceARN": project.queue_arn or _arn(project),
        "awsRegion": "us-east-1",
    }


def _arn(project: Project) -> str:
    return f"arn:aws:sqs:us-east-1:123456789012:{project.stack}{'.fifo' if project.fifo else ''}"


def nested(path: list[str], value: str) -> dict[str, Any]:
    """An object in which the path leads to the value."""
    first, *rest = path
    return {first: nested(rest, value) if rest else value}
