"""The files of a new project, according to the operator's choices. Writes nothing."""

import json
import re
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from idempotent_receiver.operations.description import DAY_SECONDS, OUTPUT
from idempotent_receiver.operations.starter.senders import SENDERS, Sender, SendingService
from idempotent_receiver.operations.starter.storage import DYNAMODB, SQL
from idempotent_receiver.protocol.record import DEFAULT_RETENTION_SECONDS

ORDERS = (("alice", 1250), ("alice", 750), ("bob", 300))
"""Customer and cents of each order in the sample events: one event has the first order, the other has all."""

TEMPLATES = {
    "handler.py": "src/{package}/handler.py",
    "template.yaml": "template.yaml",
    "samconfig.toml": "samconfig.toml",
    "Makefile": "Makefile",
    "README.md": "README.md",
    "pyproject.toml": "pyproject.toml",
    "requirements.txt": "requirements.txt",
    "requirements-dev.txt": "requirements-dev.txt",
    "env.json": "events/env.json",
    "gitignore": ".gitignore",
    "conftest.py": "tests/conftest.py",
    "test_handler.py": "tests/test_handler.py",
}
"""The destination of each template file."""

CONTAINER_TEMPLATES = {
    "Dockerfile": "Dockerfile",
    "dockerignore": ".dockerignore",
    "kubernetes.yaml": "kubernetes.yaml",
}
"""The destination of each template file that only projects with a container image have."""

SQL_TEMPLATES = {"database.py": "src/{package}/database.py"}
"""The same for projects on a relational database."""

DRIVER = "\npsycopg[binary]"

CONTAINER = """\

## In a container

The image runs the same function outside Lambda, for up to 12 hours per message. Create `variables.env` with the
function's variables from `template.yaml`, a region, and credentials that have the function role's permissions:

```sh
docker build -t {name} .
docker run --rm --init --env-file variables.env {name} QUEUE_URL {package}.handler:lambda_handler
```

Use the queue and the tables of a deployed stack. Lambda and containers may read one queue at the same time.
`docker run --rm {name} --help` lists the options.

`kubernetes.yaml` runs the image on Kubernetes, where [KEDA](https://keda.sh/) scales the pods with the queue's backlog.
Fill in your image, queue and region. The service account provides the permissions, so leave credentials out of
`variables.env`:

```sh
kubectl create configmap {stack} --from-env-file variables.env
kubectl apply -f kubernetes.yaml
```
"""

MAX_ATTEMPTS = 10
LONGEST_LINE = 120
ADDS_ORDERS = "Adds each order to its customer's total, once."
ADDS_BYTES = "Adds the bytes of each upload to its customer's total, once."

WATCH = "watch.yaml"
_HERE = files("idempotent_receiver.operations.starter")


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """The operator's choices. `key` is a key strategy and its argument, which is empty for `message_id` and `event_id`.

    `source` is the service that sends to the queue, if it is not the user's own code. With `sql`, records are in a
    relational database.
    """

    name: str
    fifo: bool = False
    asynchronous: bool = False
    key: tuple[str, str] = ("message_id", "")
    queue_arn: str | None = None
    container: bool = False
    source: SendingService | None = None
    sql: bool = False

    @property
    def sender(self) -> Sender | None:
        """How the source's messages reach the queue."""
        return None if self.source is None else SENDERS[self.source]

    @property
    def package(self) -> str:
        """The Python package of the handler."""
        return self.name.replace("-", "_")

    @property
    def stack(self) -> str:
        """The stack's name; CloudFormation allows no underscores."""
        return self.name.replace("_", "-")


def contents(project: Project, *, requirement: str, requirement_dev: str) -> dict[str, str]:
    """The project's text files by path. `requirement` and `requirement_dev` require the library, for pip."""

    def with_extras(extras: str) -> str:
        return re.sub(r"\[([\w,]+)\]", extras, requirement_dev, count=1)

    values = {
        **_values(project),
        "requirement": with_extras("[sql]") + DRIVER if project.sql else requirement,
        "requirement_dev": with_extras(r"[\1,sql]") + DRIVER if project.sql else requirement_dev,
        "requirement_cli": with_extras("[cli]"),
    }
    templates = TEMPLATES | (CONTAINER_TEMPLATES if project.container else {}) | (SQL_TEMPLATES if project.sql else {})
    kinds = _kinds(project)
    made = {
        path.format(package=project.package): filled(
            (_HERE / "files" / f"{kinds.get(name, name)}.in").read_text(), values
        )
        for name, path in templates.items()
    }
    for name, numbers in (("order", [0]), ("orders", range(len(ORDERS)))):
        event = {"Records": [record(project, number) for number in numbers]}
        made[f"events/{name}.json"] = json.dumps(event, indent=2) + "\n"
    return {**made, WATCH: watch()}


def _kinds(project: Project) -> dict[str, str]:
    """The template files that depend on what the handler reads and writes."""
    sql, s3 = "_sql" * project.sql, "_s3" * (project.source is SendingService.S3)
    return {
        "handler.py": f"handler{sql}{s3}.py",
        "test_handler.py": f"test_handler{sql}.py",
        "README.md": f"README{sql}.md",
    }


def watch() -> str:
    """The template for a consumer's alarms and dashboard."""
    return (_HERE / WATCH).read_text()


def filled(text: str, values: dict[str, str]) -> str:
    """The text with each `<<name>>` replaced. A placeholder alone on its line expands to as many lines as its value."""

    def lines(found: re.Match[str]) -> str:
        return "".join(f"{found[1] if line else ''}{line}\n" for line in values[found[2]].splitlines())

    text = re.sub(r"(?m)^( *)<<(\w+)>>\n", lines, text)
    return re.sub(r"<<(\w+)>>", lambda found: values[found[1]], text)


FIFO = """\
FifoQueue: true
DeduplicationScope: messageGroup # order and throughput per message group
FifoThroughputLimit: perMessageGroupId
"""


OLDEST_MESSAGE = (
    "OldestMessageAgeSeconds: 3600 # ten attempts of a message, for which its group waits, take up to 32 minutes"
)
LIMITED = {
    "dead_letter_queue_variable": "DEAD_LETTER_QUEUE_URL: !Ref DeadLetterQueue",
    "dead_letter_queue_url": '"DEAD_LETTER_QUEUE_URL": "https://sqs.us-east-1.amazonaws.com/123456789012/dead",',
    "sends_dead_letters": "- {Effect: Allow, Action: sqs:SendMessage, Resource: !GetAtt DeadLetterQueue.Arn}",
    "oldest_message": "",
    "attempts": """\
A message may fail ten times, over 16 minutes on average (`max_attempts`). Then the function sends it, with its last
error, to the dead-letter queue.

""",
}
"""What only a project with its own dead-letter queue has, to limit a message's attempts."""


def _values(project: Project) -> dict[str, str]:
    strategy, argument = project.key
    own_key = strategy != "message_id"
    *_, region, account, queue = (project.queue_arn or _arn(project)).split(":")
    field = argument if strategy == "body_field" and argument.isidentifier() else ""
    sender = project.sender
    storage = SQL if project.sql else DYNAMODB
    said = {
        **_queues(project),
        **storage,
        "import_os": "" if project.queue_arn else "import os\n\n",
        "name": project.name,
        "package": project.package,
        "stack": project.stack,
        "key_import": f"{strategy}, " if own_key else "",
        "decorator": _decorator(project),
        "adds": ADDS_BYTES if project.source is SendingService.S3 else ADDS_ORDERS,
        "amount": "bytes" if project.source is SendingService.S3 else "cents",
        "sender": f"{sender.resources}\n" if sender else "",
        "key_field": f"{field}: str" if field else "",
        "namespace_argument": f', "{project.name}"' if own_key else "",
        "async": "async " if project.asynchronous else "",
        "batches": "BatchSize: 10" if project.fifo else "BatchSize: 25\nMaximumBatchingWindowInSeconds: 1",
        "sending": _sending(project),
        "container": CONTAINER.format(name=project.name, package=project.package, stack=project.stack)
        if project.container
        else "",
        "account": account,
        "region": region,
        "worker_queue_url": f"https://sqs.{region}.amazonaws.com/{account}/{queue}",
    }
    outputs = {
        "QueueUrl": said["queue_url"],
        **({} if project.queue_arn else {"DeadLetterQueueUrl": "!Ref DeadLetterQueue"}),
        **(sender.outputs if sender else {}),
        OUTPUT: f"{'' if project.sql else '!Sub '}'{_description(project)}'",
        **({"DatabaseUrlSecret": "!Ref DatabaseUrl"} if project.sql else {}),
    }
    return said | {"outputs": "\n".join(f"{name}: {{Value: {value}}}" for name, value in outputs.items())}


def _decorator(project: Project) -> str:
    """The decorator of the handler: short enough to read, whatever a formatter makes of it."""
    (strategy, argument), sender = project.key, project.sender
    arguments = [
        "store",
        *([f'key={strategy}("{argument}")' if argument else f"key={strategy}"] if strategy != "message_id" else []),
        *([f'envelope="{sender.envelope}"'] if sender and sender.envelope else []),
        'sqs=boto3.client("sqs")',
    ]
    effects = "" if project.sql else ', effects=os.environ.get("EFFECTS") or "any"'
    if not project.queue_arn:
        limit = f'dead_letter_queue=os.environ["DEAD_LETTER_QUEUE_URL"], max_attempts={MAX_ATTEMPTS}'
        return f"@sqs_consumer(\n    {', '.join(arguments)},\n    {limit}{effects},\n)"
    given = ", ".join(arguments) + effects
    return f"@sqs_consumer({given})" if len(given) < LONGEST_LINE - 15 else f"@sqs_consumer(\n    {given}\n)"


def _description(project: Project) -> str:
    """The handler's description for a stack output; its effects come from a parameter."""
    strategy, argument = project.key
    own_key = strategy != "message_id"
    said = {
        "key": {strategy: argument} if argument else strategy,
        "payload": {},
        **({"envelope": project.sender.envelope} if project.sender and project.sender.envelope else {}),
        **({"namespace": project.name} if own_key else {}),
        "retention_days": DEFAULT_RETENTION_SECONDS // DAY_SECONDS,
        "effects": "any" if project.sql else "${Effects}",
        **({} if project.queue_arn else {"max_attempts": MAX_ATTEMPTS}),
    }
    return json.dumps(said, separators=(",", ":"))


def _queues(project: Project) -> dict[str, str]:
    """The template's queues and references to them: new queues, or an existing one."""
    if project.queue_arn:
        *_, account, name = project.queue_arn.split(":")
        return {
            "queues": "",
            "queue_arn": project.queue_arn,
            "queue_url": f"!Sub 'https://sqs.${{AWS::Region}}.${{AWS::URLSuffix}}/{account}/{name}'",
            "dead_letter_queue_arn": "'' # set this so that alarms watch your dead-letter queue",
            **dict.fromkeys(LIMITED, ""),
        }
    fifo, _, scope = FIFO.partition("\n") if project.fifo else ("", "", "")
    queues = (_HERE / "files" / "queues.yaml.in").read_text()
    return {
        "queues": filled(
            queues,
            {
                "fifo_queue": f"{fifo}\n{scope}" if fifo else "",
                "fifo_dead_letter_queue": fifo,
                "admitted": project.sender.statement if project.sender else "",
            },
        ),
        "queue_arn": "!GetAtt Queue.Arn",
        "queue_url": "!Ref Queue",
        "dead_letter_queue_arn": "!GetAtt DeadLetterQueue.Arn",
        **LIMITED,
        "oldest_message": OLDEST_MESSAGE if project.fifo else "",
    }


def _sending(project: Project) -> str:
    """How to have a message sent, for the README."""
    order = json.dumps(order_of(project, 0))
    if project.sender is not None:
        entry = json.dumps([{"SendingService": "orders", "DetailType": "order", "Detail": order}])
        return filled(project.sender.try_it, {"order": order, "entry": entry})
    options = ["--message-group-id alice --message-deduplication-id 1"] if project.fifo else []
    if project.key[0] == "message_attribute":
        options.append(f"--message-attributes '{project.key[1]}={{DataType=String,StringValue=order-1}}'")
    given = "".join(f"{option} " for option in options)
    return (
        "Send an order to the queue whose URL `make deploy` prints:\n\n"
        f"```sh\naws sqs send-message --queue-url QUEUE_URL {given}--message-body '{order}'\n```\n"
    )


def order_of(project: Project, number: int) -> dict[str, Any]:
    """A sample order. Its id is `order-1` and so on, where the key strategy looks for it."""
    customer, cents = ORDERS[number]
    (strategy, argument), id = project.key, f"order-{number + 1}"
    named = nested(argument.split("."), id) if strategy == "body_field" else {"order_id": id}
    return {**named, "customer": customer, "cents": cents}


def record(project: Project, number: int) -> dict[str, Any]:
    """A message as Lambda delivers it. Its key is `order-1` and so on, unless the key is the messageId."""
    (strategy, argument), order = project.key, f"order-{number + 1}"
    body = order_of(project, number)
    customer = body["customer"]
    if project.sender is not None:
        body = project.sender.wrapped(body, number + 1)
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
