"""What a new project holds for each choice."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import boto3
import pytest
from moto import mock_aws
from sqlalchemy import text as sql_text

from idempotent_receiver.operations.description import Description, description_in
from idempotent_receiver.operations.starter.project import LONGEST_LINE, WATCH, Project, contents
from idempotent_receiver.operations.starter.senders import SendingService
from idempotent_receiver.testing import MemoryStore, lambda_context
from tests.starter import BODY_FIELD, CHOICES, QUEUE, made
from tests.template import WATCH as SHIPPED
from tests.template import parsed, rendering, text_of

OWN_QUEUE = "arn:aws:sqs:us-east-1:123456789012:order-totals"
MOST_LINES = 23
MOST_LINES_OF_THE_TEMPLATE = 151


def source_of(choice: str) -> SendingService | None:
    source: SendingService | None = CHOICES[choice].get("source")
    return source


every_choice = pytest.mark.parametrize("choice", CHOICES)
without_source = pytest.mark.parametrize("choice", [each for each in CHOICES if source_of(each) is None])
on_dynamodb = pytest.mark.parametrize("choice", [each for each in CHOICES if "sql" not in CHOICES[each]])
on_sql = pytest.mark.parametrize("choice", [each for each in CHOICES if "sql" in CHOICES[each]])
with_source = pytest.mark.parametrize("choice", [each for each in CHOICES if source_of(each) is not None])


@every_choice
def test_no_placeholder_is_left(choice: str) -> None:
    assert not [path for path, text in made(choice).items() if "<<" in text]


@every_choice
def test_its_handler_is_short_and_says_what_was_chosen(choice: str) -> None:
    text = made(choice)["src/order_totals/handler.py"]
    assert len([line for line in text.splitlines() if line.strip()]) <= MOST_LINES
    tree = ast.parse(text)
    (handler,) = [node for node in tree.body if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef)]
    assert isinstance(handler, ast.AsyncFunctionDef) == bool(CHOICES[choice].get("asynchronous"))
    strategy, argument = CHOICES[choice].get("key", ("message_id", ""))
    own_key = strategy != "message_id"
    (imported,) = [
        node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "idempotent_receiver"
    ]
    own, sql = [strategy] if own_key else [], "sql" in CHOICES[choice]
    stores = [] if sql else ["DynamoDBStore", "Transaction"]
    assert [each.name for each in imported.names] == [*stores, *own, "sqs_consumer"]
    named = 'engine, "order-totals"' if sql else 'os.environ["RECORDS_TABLE"], "order-totals")'
    assert (named in text) == own_key, "such a key needs a namespace"
    assert ("    order_id: str\n" in text) == (argument == "order_id"), "the model has what the body has"
    key = f'key={strategy}("{argument}"), ' if argument else f"key={strategy}, " if own_key else ""
    envelope = {SendingService.SNS: 'envelope="Message", ', SendingService.EVENTBRIDGE: 'envelope="detail", '}.get(
        source_of(choice), ""
    )
    decorated = " ".join(text.partition("@sqs_consumer(")[2].partition("\n)")[0].split())
    limit = 'dead_letter_queue=os.environ["DEAD_LETTER_QUEUE_URL"], max_attempts=10, '
    limit = "" if "queue_arn" in CHOICES[choice] else limit
    effects = "" if sql else 'effects=os.environ.get("EFFECTS") or "any"'
    given = f'store, {key}{envelope}sqs=boto3.client("sqs"), {limit}{effects}'
    assert decorated.partition(") def ")[0].strip(" ,)") == given.strip(" ,)")
    assert max(map(len, text.splitlines())) <= LONGEST_LINE


@pytest.mark.parametrize(
    ("full", "cli"),
    [
        ("idempotent-receiver[cli,local,testing]~=0.1", "idempotent-receiver[cli]~=0.1"),
        (
            "./vendor/the_library-0.1-py3-none-any.whl[cli,local,testing]",
            "./vendor/the_library-0.1-py3-none-any.whl[cli]",
        ),
    ],
)
def test_with_an_image_it_has_three_files_more_which_run_its_handler_by_receiver_work(full: str, cli: str) -> None:
    with_image, plain = (
        contents(Project(name="order-totals", container=each), requirement="the library", requirement_dev=full)
        for each in (True, False)
    )
    assert with_image.keys() - plain.keys() == {"Dockerfile", ".dockerignore", "kubernetes.yaml"}
    assert f"-r requirements.txt '{cli}'" in with_image["Dockerfile"]
    assert 'ENTRYPOINT ["receiver", "work"]' in with_image["Dockerfile"]
    assert "order_totals.handler:lambda_handler" in with_image["README.md"]
    assert "docker" not in plain["README.md"]
    allowed = {line[1:] for line in with_image[".dockerignore"].splitlines() if line.startswith("!")}
    assert {"requirements.txt", "src", "vendor"} == allowed


KEYS = [("message_id", ""), BODY_FIELD, ("message_attribute", "order-id")]


@pytest.mark.parametrize(("fifo", "key", "own_queue"), [*product([False, True], KEYS, [False, True])])
def test_its_template_is_read_in_one_sitting(fifo: bool, key: tuple[str, str], own_queue: bool) -> None:
    queue = f"{QUEUE}.fifo" if fifo else QUEUE
    project = Project(name="order-totals", fifo=fifo, key=key, queue_arn=queue if own_queue else None)
    text = contents(project, requirement="x", requirement_dev="x[cli]")["template.yaml"]
    assert len(text.splitlines()) <= MOST_LINES_OF_THE_TEMPLATE
    assert "Conditions:" not in text
    assert "!If" not in text


@pytest.mark.parametrize("own_queue", [False, True])
def test_it_outputs_the_dead_letter_queue_that_it_makes_and_no_other(own_queue: bool) -> None:
    project = Project(name="order-totals", queue_arn=QUEUE if own_queue else None)
    text = contents(project, requirement="x", requirement_dev="x[cli]")["template.yaml"]
    outputs = rendering(parsed(text)).rendered()["Outputs"]
    assert ("DeadLetterQueueUrl" in outputs) is not own_queue


@pytest.mark.parametrize("choice", [each for each in CHOICES if "queue_arn" not in CHOICES[each]])
def test_a_message_has_ten_attempts_of_its_own_and_sqs_moves_it_only_after_fifty_receives(
    choice: str, handler_of: Callable[[str], Any]
) -> None:
    resources = rendering(parsed(made(choice)["template.yaml"])).rendered()["Resources"]
    variables = resources["Consumer"]["Properties"]["Environment"]["Variables"]
    assert handler_of(choice).options.max_attempts == 10
    assert variables["DEAD_LETTER_QUEUE_URL"] == {"Ref": "DeadLetterQueue"}
    assert resources["Queue"]["Properties"]["RedrivePolicy"]["maxReceiveCount"] == 50


def test_a_fifo_queue_and_its_dead_letter_queue_are_fifo_and_only_the_first_is_ordered_by_groups_alone() -> None:
    text = contents(Project(name="order-totals", fifo=True), requirement="x", requirement_dev="x[cli]")["template.yaml"]
    resources = rendering(parsed(text)).rendered()["Resources"]
    queue, dead = ({*resources[name]["Properties"]} for name in ("Queue", "DeadLetterQueue"))
    high_throughput = {"DeduplicationScope", "FifoThroughputLimit"}
    assert ("FifoQueue" in queue & dead, high_throughput <= queue, high_throughput & dead) == (True, True, set())


@pytest.fixture
def handler_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], Any]:
    """Imports a choice's handler."""
    for name in ("RECORDS_TABLE", "TOTALS_TABLE"):
        monkeypatch.setenv(name, "a-table")
    monkeypatch.setenv("DATABASE_URL", f"sqlite:///{tmp_path}/database")
    monkeypatch.setenv("DEAD_LETTER_QUEUE_URL", "https://sqs.us-east-1.amazonaws.com/123456789012/dead")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")

    def imported(choice: str) -> Any:
        for name in ("order_totals", "order_totals.database", "order_totals.handler"):
            module = ModuleType(name)
            monkeypatch.setitem(sys.modules, name, module)
            exec(made(choice).get(f"src/{name.replace('.', '/')}.py", ""), vars(module))
        return module.lambda_handler

    return imported


@every_choice
def test_its_output_says_what_receiver_must_know_of_the_code(choice: str, handler_of: Callable[[str], Any]) -> None:
    code = Description.of(handler_of(choice))
    output = rendering(parsed(made(choice)["template.yaml"])).rendered()["Outputs"]["ConsumerDescription"]["Value"]
    assert description_in(text_of(output)) == code


@on_dynamodb
def test_its_messages_are_claimed_unless_its_template_says_otherwise(choice: str) -> None:
    handler = made(choice)["src/order_totals/handler.py"]
    assert 'effects=os.environ.get("EFFECTS") or "any"' in handler
    assert "tx: Transaction" in handler


ORDERS = ({"customer": "alice", "cents": 1250}, {"customer": "alice", "cents": 750}, {"customer": "bob", "cents": 300})


def expected_record(choice: str, number: int) -> dict[str, Any]:
    """A message as Lambda hands it over, with a key where the handler looks for it."""
    strategy, argument = CHOICES[choice].get("key", ("message_id", ""))
    order, fifo, key = ORDERS[number - 1], "fifo" in CHOICES[choice], f"order-{number}"
    group = {"MessageGroupId": order["customer"], "MessageDeduplicationId": key, "SequenceNumber": f"{number:020}"}
    times = {"SentTimestamp": "1800000000000", "ApproximateFirstReceiveTimestamp": "1800000000001"}
    attribute = {"order-id": {"stringValue": key, "dataType": "String"}}
    return {
        "messageId": f"5f2c1d64-0001-4000-8000-00000000000{number}",
        "receiptHandle": f"handle-{number}",
        "body": json.dumps({**({"order": {"id": key}} if argument == "order.id" else {"order_id": key}), **order}),
        "attributes": {"ApproximateReceiveCount": "1", **times, **(group if fifo else {})},
        "messageAttributes": attribute if strategy == "message_attribute" else {},
        "eventSource": "aws:sqs",
        "eventSourceARN": CHOICES[choice].get("queue_arn") or OWN_QUEUE + (".fifo" if fifo else ""),
        "awsRegion": "us-east-1",
    }


@without_source
def test_its_events_are_such_as_lambda_hands_over(choice: str) -> None:
    records = [expected_record(choice, number) for number in (1, 2, 3)]
    events = {name: json.loads(made(choice)[f"events/{name}.json"]) for name in ("order", "orders")}
    assert events == {"order": {"Records": records[:1]}, "orders": {"Records": records}}
    assert made(choice)["events/orders.json"] == json.dumps(events["orders"], indent=2) + "\n", "for people, too"


@without_source
def test_its_readme_sends_what_its_queue_and_its_handler_take(choice: str) -> None:
    _, _, sent = made(choice)["README.md"].partition("aws sqs send-message --queue-url QUEUE_URL ")
    *options, named, body = shlex.split(sent.partition("\n```")[0])
    record = expected_record(choice, 1)
    group = ["--message-group-id", "alice", "--message-deduplication-id", "1"]
    attribute = ["--message-attributes", "order-id={DataType=String,StringValue=order-1}"]
    needed = group if "MessageGroupId" in record["attributes"] else attribute if record["messageAttributes"] else []
    assert (options, named, body) == (needed, "--message-body", record["body"])


def test_its_tests_do_not_run_with_the_developers_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that writes by a client of its own would do so thousands of times, and for real."""
    real = {"AWS_ACCESS_KEY_ID": "real", "AWS_SECRET_ACCESS_KEY": "real", "AWS_SESSION_TOKEN": "real"}
    environment = {**real, "AWS_PROFILE": "production"}
    monkeypatch.setattr(os, "environ", environment)
    exec(made("plain")["tests/conftest.py"], {})
    monkeypatch.undo()
    assert not {"real", "production"} & {*environment.values()}
    assert environment["AWS_ACCESS_KEY_ID"] == environment["AWS_SECRET_ACCESS_KEY"] == "test"


def test_what_watches_it_is_the_shipped_template() -> None:
    assert made("plain")[WATCH] == SHIPPED.read_text()


def test_its_makefile_works_wherever_the_project_is_moved() -> None:
    """A script in an environment begins with the path at which that was made: nothing is there, or the old copy."""
    scripts = set(re.findall(r"\.(?:venv|tools/\w+)/bin/(\S+)", made("plain")["Makefile"]))
    assert scripts == {"python", "$(PIP)"}
    assert re.search(r"(?m)^PIP = python -m pip ", made("plain")["Makefile"])


def test_a_wheel_that_was_replaced_is_installed() -> None:
    """Pip keeps what it has of the same version."""
    (recipe,) = re.findall(r"(?ms)^\.venv/\.complete: (.*?)\n\n", made("plain")["Makefile"])
    assert "$(wildcard vendor/*.whl)" in recipe
    assert "$(venv) .venv\n" in recipe
    assert re.search(r"(?ms)^venv = .*?-m venv --clear$", made("plain")["Makefile"])


def test_its_readme_is_one_screen_and_names_commands_that_there_are() -> None:
    readme = made("plain")["README.md"]
    assert len(readme.splitlines()) <= 50
    targets = set(re.findall(r"(?m)^([a-z]+):.*## ", made("plain")["Makefile"]))
    assert set(re.findall(r"\bmake ([a-z]+)", readme)) <= targets


@mock_aws
@pytest.mark.parametrize("choice", [each for each in CHOICES if "sql" not in CHOICES[each]])
def test_with_the_tables_that_its_readme_names_its_handler_works_under_moto(
    choice: str, handler_of: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = boto3.client("dynamodb")
    tables = dict(re.findall(r"`(\w+)` \(key `(\w+)`\)", made(choice)["README.md"]))
    for table, key in tables.items():
        monkeypatch.setenv(f"{table.upper()}_TABLE", table)
        types: Any = [{"AttributeName": key, "AttributeType": "S"}]
        keys: Any = [{"AttributeName": key, "KeyType": "HASH"}]
        client.create_table(TableName=table, BillingMode="PAY_PER_REQUEST", AttributeDefinitions=types, KeySchema=keys)
    handler, event = handler_of(choice), json.loads(made(choice)["events/orders.json"])

    answers, totals = zip(
        *[(handler(event, lambda_context()), client.scan(TableName="totals")["Items"]) for _ in range(2)], strict=True
    )

    assert answers == ({"batchItemFailures": []},) * 2
    assert totals[0] == totals[1] != []


@pytest.mark.parametrize("choice", [each for each in CHOICES if source_of(each) and "sql" not in CHOICES[each]])
def test_the_messages_of_a_source_take_effect_once_whoever_repeats_them(
    choice: str, handler_of: Callable[[str], Any]
) -> None:
    handler, store = handler_of(choice), MemoryStore("order-totals")
    handler = handler.with_options(
        replace(handler.options, store=store, sqs=None, dead_letter_queue=None, max_attempts=None)
    )
    event = json.loads(made(choice)["events/orders.json"])
    again = {"Records": [{**each, "messageId": f"{each['messageId']}-again"} for each in event["Records"]]}
    answers = [handler(each, lambda_context()) for each in (event, again)]
    assert answers == [{"batchItemFailures": []}] * 2
    amount = "bytes" if source_of(choice) is SendingService.S3 else "cents"
    totals = {item["customer"]: item[amount] for item in store.tables["a-table"].items.values()}
    assert totals == {"alice": 2000, "bob": 300}


@with_source
def test_only_its_source_may_send_and_only_from_this_account(choice: str) -> None:
    template = rendering(parsed(made(choice)["template.yaml"])).rendered()
    statements = template["Resources"]["QueuePolicy"]["Properties"]["PolicyDocument"]["Statement"]
    (allowed,) = [each for each in statements if each["Effect"] == "Allow"]
    service = {SendingService.EVENTBRIDGE: "events"}.get(sent_by := source_of(choice), sent_by)  # type: ignore[arg-type]
    assert allowed["Principal"] == {"Service": f"{service}.amazonaws.com"}
    assert allowed["Condition"].keys() == {"ArnEquals", "StringEquals"}
    assert allowed["Condition"]["StringEquals"].keys() == {"aws:SourceAccount"}
    assert "*" not in str(allowed)


@with_source
def test_its_readme_says_how_to_have_a_message_sent(choice: str) -> None:
    readme = made(choice)["README.md"]
    command = {
        SendingService.S3: "aws s3 cp",
        SendingService.SNS: "aws sns publish",
        SendingService.EVENTBRIDGE: "aws events put-events",
    }
    assert f"\n{command[source_of(choice)]} " in readme  # type: ignore[index]
    assert "--queue-url QUEUE_URL" not in readme


# On a relational database.


@on_sql
def test_on_a_database_a_message_counts_once_whoever_repeats_it(choice: str, handler_of: Callable[[str], Any]) -> None:
    """Of a source, the same event in another message is the same too."""
    handler = handler_of(choice)
    handler = handler.with_options(replace(handler.options, sqs=None, dead_letter_queue=None, max_attempts=None))
    event = json.loads(made(choice)["events/orders.json"])
    again = "-again" if source_of(choice) or "key" in CHOICES[choice] else ""
    twice = {"Records": [{**each, "messageId": f"{each['messageId']}{again}"} for each in event["Records"]]}
    answers = [handler(each, lambda_context()) for each in (event, twice)]
    assert answers == [{"batchItemFailures": []}] * 2
    with handler.options.store.engine.connect() as at:
        assert dict(at.execute(sql_text("SELECT * FROM totals")).all()) == {"alice": 2000, "bob": 300}
    handler.options.store.engine.dispose()


@on_sql
def test_the_databases_url_is_a_secret_that_no_console_shows(choice: str) -> None:
    """Neither in the template, nor as a dynamic reference, whose value the function's settings would show."""
    text = made(choice)["template.yaml"]
    resources = rendering(parsed(text)).rendered()["Resources"]
    assert resources["DatabaseUrl"].get("Properties", {}) == {}
    variables = resources["Consumer"]["Properties"]["Environment"]["Variables"]
    assert variables["DATABASE_URL_SECRET"] == {"Ref": "DatabaseUrl"}
    assert "resolve:" not in text
    assert [each for each in made(choice)["src/order_totals/database.py"].splitlines() if "SecretId" in each]


@on_sql
def test_on_a_database_nothing_is_kept_in_dynamodb(choice: str) -> None:
    text = made(choice)["template.yaml"]
    assert "AWS::DynamoDB" not in text
    assert "dynamodb:" not in text
    assert "RecordsTable" not in rendering(parsed(text)).rendered()["Outputs"]


@on_sql
def test_on_a_database_its_requirements_bring_the_store_and_a_driver(choice: str) -> None:
    files = made(choice)
    assert files["requirements.txt"].splitlines() == ["idempotent-receiver[sql]~=0.1", "psycopg[binary]"]
    assert files["requirements-dev.txt"].splitlines() == ["idempotent-receiver[cli,sql]~=0.1", "psycopg[binary]"]
