"""What the documents say is so: their examples run, their links resolve, and nothing that can be set is left out."""

from __future__ import annotations

import ast
import base64
import gzip
import inspect
import json
import re
import shlex
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from moto import mock_aws
from sqlalchemy import create_engine, select
from sqlalchemy.orm import Session
from typer.core import TyperGroup as Group
from typer.main import get_command

import idempotent_receiver
from benchmarks import outside
from benchmarks.document import comparison, marks
from idempotent_receiver import (
    DynamoDBStore,
    MemoryStore,
    Message,
    UnusableKey,
    body_field,
    http_endpoint,
    idempotent,
    payload_key,
    sqs_consumer,
)
from idempotent_receiver.operations.cli import receiver
from idempotent_receiver.protocol import Status
from idempotent_receiver.sql import SQLStore
from idempotent_receiver.testing import explore
from tests.current_loop import current_loop
from tests.template import load
from tests.unit.http.api import request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [
    ROOT / name
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "events/README.md", *sorted(ROOT.glob("docs/*.md")))
]
README, CONSUMER, DEPLOYING, LIMITS, HTTP_AND_FUNCTIONS = (
    (ROOT / name).read_text()
    for name in (
        "README.md",
        "docs/consumer.md",
        "docs/deploying.md",
        "docs/limits.md",
        "docs/http-and-functions.md",
    )
)
STARTER = ROOT / "src/idempotent_receiver/operations/starter/files/Makefile.in"
RESULTS = ROOT / "benchmarks" / "results.json"

CONTEXT = SimpleNamespace(get_remaining_time_in_millis=lambda: 60_000, aws_request_id="1", function_name="docs")


def name_of(document: Path) -> str:
    return str(document.relative_to(ROOT))


def code_in(document: Path) -> str:
    """The document's blocks of code, and what is in code style between them."""
    blocks = re.split(r"(?ms)^```(\w*)\n(.*?)^```$", document.read_text())
    prose, languages, code = blocks[::3], blocks[1::3], blocks[2::3]
    shown = [text for language, text in zip(languages, code, strict=True) if language in ("", "sh")]
    return "\n".join([*shown, *(found for text in prose for found in re.findall(r"`[^`]+`", text))])


def code_of(document: Path, language: str) -> str:
    """The document's code, each line where it stands, so that a traceback points into the document."""
    kept: list[str] = []
    inside = False
    for line in document.read_text().splitlines():
        if line.startswith("```"):
            inside = line == f"```{language}"
            kept.append("")
        else:
            kept.append(line if inside else "")
    return "\n".join(kept)


@pytest.fixture
def examples(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """The names that a document's examples define, run one after another as one module."""
    document: Path = request.param
    module = ModuleType(document.stem)
    sys.modules[document.stem] = module  # where pydantic looks for a class's annotations
    try:
        with current_loop():
            exec(compile(code_of(document, "python"), name_of(document), "exec"), vars(module))
            yield vars(module)
    finally:
        del sys.modules[document.stem]


@pytest.mark.parametrize("examples", [ROOT / "docs/consumer.md"], indirect=True)
def test_the_documented_withdrawal_is_refused_for_the_reason_it_names(examples: dict[str, Any]) -> None:
    """An example with `otherwise` is only right if its expression is."""
    store = MemoryStore(tables={"accounts": "account"})
    store.tables["accounts"].items["alice",] = {"account": "alice", "balance": 100}
    handler = sqs_consumer(store)(examples["withdraw"].__wrapped__)
    for id, cents in (("m-1", 70), ("m-2", 70)):
        handler({"Records": [{"messageId": id, "body": f'{{"account": "alice", "cents": {cents}}}'}]}, CONTEXT)
    assert store.tables["accounts"].items["alice",]["balance"] == 30
    assert "account alice cannot pay" in store.items["m-2"]["error"]


@pytest.mark.parametrize("examples", [ROOT / "docs/consumer.md"], indirect=True)
def test_the_documented_parcel_waits_for_its_payment(examples: dict[str, Any]) -> None:
    store = MemoryStore(tables=dict.fromkeys(("payments", "parcels"), "order"))
    handler = sqs_consumer(store)(examples["ship"].__wrapped__)

    def deliver(**order: Any) -> tuple[str, int]:
        handler({"Records": [{"messageId": order["id"], "body": json.dumps(order)}]}, CONTEXT)
        return json.loads(store.items[order["id"]].get("error", "{}")).get("text"), len(store.tables["parcels"].items)

    assert deliver(id="o-1", released=False) == ("the order is on hold", 0)
    assert deliver(id="o-1", released=False) == ("the order is on hold", 0)
    assert deliver(id="o-2", released=True) == ("the order is not paid", 0)
    store.tables["payments"].items["o-2",] = {"order": "o-2", "paid_at": 1}
    assert deliver(id="o-2", released=True) == (None, 1)


@pytest.mark.parametrize("examples", [ROOT / "docs/consumer.md"], indirect=True)
def test_the_documented_payment_is_one_that_the_account_can_pay(examples: dict[str, Any]) -> None:
    store = MemoryStore(tables={"accounts": "account"})
    account = store.tables["accounts"].items["alice",] = {"account": "alice", "balance": 100}
    handler = sqs_consumer(store)(examples["pay"].__wrapped__)
    order = json.dumps({"account": "alice", "cents": 70})
    answer = handler({"Records": [{"messageId": id, "body": order} for id in ("m-1", "m-2")]}, CONTEXT)
    assert [failed["itemIdentifier"] for failed in answer["batchItemFailures"]] == ["m-2"]
    assert store.tables["accounts"].items["alice",] == account | {"balance": 30}


@pytest.mark.parametrize("examples", [ROOT / "docs/consumer.md"], indirect=True)
@mock_aws
def test_the_documented_envelopes_open(examples: dict[str, Any]) -> None:
    """A second send is a duplicate, whether it was offloaded again or compressed anew."""
    order = json.dumps({"order_id": "o-1"})
    examples["s3"] = s3 = boto3.client("s3", region_name="us-east-1")
    s3.create_bucket(Bucket="large")
    bodies: dict[str, list[str]] = {"SQS extended client": [order]}
    for number in (1, 2):
        s3.put_object(Bucket="large", Key=str(number), Body=order.encode())
        pointer = [
            "software.amazon.payloadoffloading.PayloadS3Pointer",
            {"s3BucketName": "large", "s3Key": str(number)},
        ]
        zipped = base64.b64encode(gzip.compress(order.encode(), number)).decode()
        bodies["SQS extended client"].append(json.dumps(pointer))
        bodies.setdefault("gzip", []).append(zipped)
    bodies["base64"] = [base64.b64encode(order.encode()).decode()]
    assert bodies.keys() == examples["ENVELOPES"].keys()
    for name, sent in bodies.items():
        taken: list[dict[str, str]] = []
        options = replace(
            examples["pack"].options,
            store=MemoryStore("n"),
            key=body_field("order_id"),
            envelope=examples["ENVELOPES"][name],
        )
        handler = examples["pack"].with_options(options, _of_body(taken))
        answer = handler({"Records": [{"messageId": str(n), "body": body} for n, body in enumerate(sent)]}, CONTEXT)
        assert (answer, taken) == ({"batchItemFailures": []}, [{"order_id": "o-1"}])


def _of_body(taken: list[dict[str, str]]) -> Callable[[dict], None]:
    def take(order: dict) -> None:
        taken.append(order)

    return take


@pytest.mark.parametrize("examples", [ROOT / "docs/consumer.md"], indirect=True)
def test_the_documented_customer_is_made_by_the_first_message(examples: dict[str, Any]) -> None:
    """Of two in one batch, too: the second runs again, and finds it."""
    store = MemoryStore(tables={"customers": "id"})
    handler = sqs_consumer(store, concurrency=2)(examples["register"].__wrapped__)
    bodies = {
        "m-1": {"id": "c-1", "name": "Ada"},
        "m-2": {"id": "c-1", "name": "Bo"},
        "m-3": {"id": "c-2", "name": "Cy"},
    }
    records = [{"messageId": id, "body": json.dumps(body)} for id, body in bodies.items()]
    assert handler({"Records": records}, CONTEXT) == {"batchItemFailures": []}
    assert {item["status"] for item in store.items.values()} == {"COMPLETED"}
    assert sorted(item["id"] for item in store.tables["customers"].items.values()) == ["c-1", "c-2"]


@pytest.mark.parametrize("examples", [ROOT / "docs/consumer.md"], indirect=True)
def test_the_documented_job_is_marked_while_it_is_worked_on_and_then_complete(
    examples: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure leaves the mark, which the next attempt replaces."""
    with mock_aws():
        client = boto3.client("dynamodb", region_name="us-east-1")
        for table in ("records", "jobs"):
            client.create_table(
                TableName=table,
                KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
                AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
                BillingMode="PAY_PER_REQUEST",
            )
        handler = sqs_consumer(DynamoDBStore("records", client=client))(examples["render"].__wrapped__)
        draw, keys = examples["draw"], list[str]()

        def marked() -> dict[str, Any]:
            return client.get_item(TableName="jobs", Key={"id": {"S": "j-1"}})["Item"]

        def watched(job: dict[str, Any], *, idempotency_key: str) -> str:
            keys.append(idempotency_key)
            assert marked() == {"id": {"S": "j-1"}, "attempt": {"N": str(len(keys))}}
            if len(keys) == 1:
                raise ConnectionError
            return str(draw(job, idempotency_key=idempotency_key))

        monkeypatch.setitem(examples, "jobs", client)
        monkeypatch.setitem(examples, "draw", watched)
        record = {"messageId": "m-1", "body": json.dumps({"id": "j-1"})}
        assert [len(handler({"Records": [record]}, CONTEXT)["batchItemFailures"]) for _ in range(3)] == [1, 0, 0]
        assert (len(keys), len(set(keys))) == (2, 1)
        assert marked()["picture"] == {"S": "https://example.com/j-1.png"}


@pytest.mark.parametrize("examples", [ROOT / "docs/consumer.md"], indirect=True)
def test_the_documented_dispatcher_places_an_order_once_however_it_comes(
    examples: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a queue, over HTTP or in a direct call; `receiver` is told which consumer to name."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "example")
    with mock_aws():
        records = boto3.resource("dynamodb", region_name="us-east-1").create_table(
            TableName="records",
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        )
        handler, order = examples["lambda_handler"], {"id": "o-1"}
        queued = {"Records": [{"messageId": "m-1", "body": json.dumps(order)}]}
        assert [handler(queued, CONTEXT) for _ in range(2)] == [{"batchItemFailures": []}] * 2
        asked = [handler(request("k-1", order), CONTEXT) for _ in range(2)]
        assert [(each["statusCode"], each["body"]) for each in asked] == [(201, "order o-1")] * 2
        assert [handler(order, CONTEXT) for _ in range(2)] == ["order o-1"] * 2
        attempts = {item["id"]: item["status"] for item in records.scan()["Items"]}
    assert attempts.keys() == {"m-1", "placed#o-1", "placed.http#k-1"}
    assert set(attempts.values()) == {"COMPLETED"}
    with pytest.raises(TypeError, match=r"use a consumer that its module has: .*\bfrom_queue\b"):
        explore(handler, [order])


@pytest.mark.parametrize("examples", [ROOT / "docs/http-and-functions.md"], indirect=True)
def test_a_500_that_the_documented_api_makes_of_an_exception_is_not_replayed(examples: dict[str, Any]) -> None:
    """Two attempts have one key for the bank."""
    event = {
        "version": "2.0",
        "headers": {"idempotency-key": "8e03978e", "content-type": "application/json"},
        "requestContext": {"http": {"method": "POST", "path": "/payments", "sourceIp": "192.0.2.1"}},
        "body": '{"cents": 1250}',
    }
    assert [examples["serve"](event, CONTEXT)["statusCode"] for _ in range(3)] == [500, 200, 200]
    assert (len(examples["charged"]), len(set(examples["charged"]))) == (2, 1)


@pytest.mark.parametrize("examples", [ROOT / "docs/http-and-functions.md"], indirect=True)
def test_a_page_of_a_documented_origin_may_read_why_its_request_was_refused(examples: dict[str, Any]) -> None:
    event = {"httpMethod": "POST", "path": "/baskets", "headers": {"origin": "https://shop.example"}, "body": "{}"}
    without_a_key = examples["add_to_basket"](event, CONTEXT)
    assert without_a_key["statusCode"] == 400
    assert without_a_key["headers"]["Access-Control-Allow-Origin"] == "https://shop.example"
    assert examples["add_to_basket"]({**event, "httpMethod": "OPTIONS"}, CONTEXT)["statusCode"] == 204


@pytest.mark.parametrize("examples", [ROOT / "docs/http-and-functions.md"], indirect=True)
def test_a_documented_refund_that_is_sent_again_later_is_the_same_request_of_its_caller(
    examples: dict[str, Any],
) -> None:
    def replayed(caller: str, body: str) -> str | None:
        identity = {"authorizer": {"claims": {"sub": caller}}}
        event = {"httpMethod": "POST", "path": "/refunds", "headers": {}, "requestContext": identity, "body": body}
        response = examples["refund"](event, CONTEXT)
        assert response["statusCode"] == 201
        return response.get("headers", {}).get("Idempotency-Replayed")

    sent = [("alice", 1), ("alice", 2), ("bob", 1)]
    assert [replayed(who, f'{{"order": 7, "sent_at": {at}}}') for who, at in sent] == [None, "true", None]


@pytest.mark.parametrize("examples", [ROOT / "docs/http-and-functions.md"], indirect=True)
def test_what_a_documented_key_leaves_out_may_differ_and_is_refused_otherwise(examples: dict[str, Any]) -> None:
    sent: list[str] = []

    def send(parcel: Any, session: object, express: bool = False) -> None:
        sent.append(parcel.order)

    parcel = examples["Parcel"]
    call = idempotent(MemoryStore("left-out"), key=examples["without_sessions"], lease_seconds=60)(send)
    call(parcel("7", object()), object())
    call(parcel("7", object()), object(), False)
    assert sent == ["7"]
    strict = idempotent(MemoryStore("strict"), key=payload_key(), lease_seconds=60)(send)
    with pytest.raises(UnusableKey, match="argument 'session'"):
        strict(parcel("7"), object())


WITH_EXAMPLES = [document for document in DOCUMENTS if code_of(document, "python").strip()]


@pytest.mark.parametrize("examples", WITH_EXAMPLES, ids=name_of, indirect=True)
def test_the_examples_run(examples: dict[str, Any], request: pytest.FixtureRequest) -> None:
    for test in [value for name, value in examples.items() if name.startswith("test_")]:
        test(**{name: request.getfixturevalue(name) for name in inspect.signature(test).parameters})


def explorations(code: str) -> Iterator[tuple[int, bool]]:
    """The lines of code that explore a handler, and whether the function around asserts that all was played."""
    for function in ast.walk(ast.parse(code)):
        if not isinstance(function, ast.FunctionDef):
            continue
        asserted = [ast.unparse(one) for one in ast.walk(function) if isinstance(one, ast.Assert)]
        for one in ast.walk(function):
            if isinstance(one, ast.Call) and ast.unparse(one.func).rpartition(".")[2] == "explore":
                yield one.lineno, any(".complete" in each for each in asserted)


def test_every_example_of_explore_asserts_that_all_was_played() -> None:
    """Or a search that was cut short would look like a success."""
    starter = (STARTER.parent / "test_handler.py.in").read_text().replace("<<package>>", "orders")
    docstring = re.findall(r"(?m)^ {8}.*\n", explore.__doc__ or "")
    examples = {name_of(one): code_of(one, "python") + code_of(one, "py") for one in DOCUMENTS}
    examples |= {"the starter": starter, "the docstring": textwrap.dedent("".join(docstring))}
    found = {name: asserted for name, code in examples.items() if (asserted := [*explorations(code)])}
    assert found.keys() == {"docs/testing.md", "docs/tutorial.md", "the starter", "the docstring"}
    assert {name for name, asserted in found.items() if not all(so for _, so in asserted)} == set()


@pytest.mark.parametrize("examples", [ROOT / "docs/sql.md"], indirect=True)
def test_the_documented_order_takes_effect_once_in_a_database(examples: dict[str, Any], tmp_path: Path) -> None:
    """Its helper commits, and an order that the account cannot pay leaves nothing behind."""
    engine = create_engine(f"sqlite:///{tmp_path / 'bank.db'}")
    examples["Base"].metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.add(examples["Account"](id="alice", cents=100))
    handler = examples["lambda_handler"]
    store = SQLStore(engine, table=examples["records"])
    handler = handler.with_options(replace(handler.options, store=store))
    for id, account, failed in (("m-1", "alice", []), ("m-1", "alice", []), ("m-2", "nobody", ["m-2"])):
        record = {"messageId": id, "body": json.dumps({"account": account, "cents": 30})}
        answer = handler({"Records": [record]}, CONTEXT)
        assert [one["itemIdentifier"] for one in answer["batchItemFailures"]] == failed
    with Session(engine) as session:
        assert session.get_one(examples["Account"], "alice").cents == 70
        assert [entry.cents for entry in session.scalars(select(examples["Entry"]))] == [-30]
    engine.dispose()


@pytest.mark.parametrize("examples", [ROOT / "docs/alternatives.md"], indirect=True)
def test_late_and_repeated_messages_change_nothing(examples: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "example")
    with mock_aws():
        table = boto3.resource("dynamodb", region_name="us-east-1").create_table(
            TableName="customers",
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": "customer", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "customer", "KeyType": "HASH"}],
        )
        keep_latest = examples["keep_latest"]
        news = [
            keep_latest(table, "alice", address, version)
            for address, version in [("A", 1), ("C", 3), ("B", 2), ("C", 3)]
        ]
        assert news == [True, True, False, False]
        assert table.get_item(Key={"customer": "alice"})["Item"]["address"] == "C"


def slug(heading: str) -> str:
    """A heading's anchor, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(document: Path) -> set[str]:
    return {slug(heading) for heading in re.findall(r"(?m)^#+ (.*)$", document.read_text())}


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text()):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        there = (document.parent / path).resolve() if path else document
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), target


def test_the_drawing_of_a_record_has_its_states() -> None:
    (drawing,) = re.findall(r"(?s)stateDiagram-v2\n(.*?)```", (ROOT / "docs/protocol.md").read_text())
    assert set(re.findall(r"\b[A-Z]{2,}\b", drawing)) == {*Status}


def test_the_runbook_says_where_it_sets_the_names_that_its_commands_take() -> None:
    sections = re.split(r"(?m)^(?=##+ )", (ROOT / "docs/operating.md").read_text())
    (naming,) = (each for each in sections if each.startswith("### Names\n"))
    set_there = dict(re.findall(r'(?m)^(\w+)=\$\(output "\$RECEIVER_STACK(?:-api)?" (\w+)\)$', naming))
    outputs = load()["Outputs"] | load(ROOT / "deploy/api.yaml")["Outputs"]
    assert set(set_there.values()) <= outputs.keys()
    taken = {section: set(re.findall(r'"\$(\w+_(?:GROUP|URL))"', section)) for section in sections}
    takers = {section: names for section, names in taken.items() if names}
    symptoms = (ROOT / "docs/symptoms.md").read_text()
    assert "](operating.md#names)" in symptoms.partition("```")[0]
    theirs = set(re.findall(r'"\$(\w+_(?:GROUP|URL))"', symptoms))
    assert theirs.union(*takers.values()) == set_there.keys()
    for section in takers:
        assert "](#names)" in section, section.partition("\n")[0]


# The tutorial names the files of a project that it makes.
@pytest.mark.parametrize("document", [each for each in DOCUMENTS if each.name != "tutorial.md"], ids=name_of)
def test_files_that_are_named_exist(document: Path) -> None:
    for path in re.findall(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|json|md|yaml|toml|txt))`", document.read_text()):
        bases = (ROOT, ROOT / "src", ROOT / "src/idempotent_receiver", document.parent)
        assert any((base / path).exists() for base in bases), path


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_make_target_that_is_named_exists(document: Path) -> None:
    of_starters = name_of(document) in ("README.md", "docs/tutorial.md", "docs/component.md")
    makefiles = [ROOT / "Makefile", *([STARTER] if of_starters else [])]
    targets = {target for each in makefiles for target in re.findall(r"(?m)^([a-z-]+):", each.read_text())}
    named = set(re.findall(r"(?m)(?:`|^)make ([a-z-]+)", document.read_text()))
    assert named <= targets


TYPED = re.compile(r"(?m)(?:^|`)(?:[\w./]+/)?receiver ((?:[^`\n\\]|\\\n)+)")
"""The command with what follows it, in a block of code or a line."""


def not_understood(arguments: list[str]) -> str | None:
    """What of these is neither a command of `receiver` nor an option of the command before it."""
    command: Any = get_command(receiver.app)
    for word in arguments:
        options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        if word.startswith("-"):
            if word not in options | {"--help"}:
                return word
        elif isinstance(command, Group):
            if word not in command.commands:
                return word
            command = command.commands[word]
    return None


# Decisions name commands that were rejected.
@pytest.mark.parametrize("document", [each for each in DOCUMENTS if each.name != "decisions.md"], ids=name_of)
def test_every_command_of_receiver_that_is_named_exists(document: Path) -> None:
    typed = [shlex.split(found, comments=True) for found in TYPED.findall(code_in(document))]
    assert [(words, wrong) for words in typed if (wrong := not_understood(words))] == []


def test_the_options_of_init_that_are_named_exist() -> None:
    (line,) = re.findall(r"(?m)^receiver init .*$", README)
    table = rows("## Make it yours", (ROOT / "docs/tutorial.md").read_text())
    named = set(re.findall(r"--[a-z-]+", " ".join([line, *table])))
    assert {"--fifo", "--async", "--key", "--queue-arn"} <= named
    assert not_understood(["init", "orders", *named]) is None


@pytest.mark.parametrize("name", ["guarantees.md", "when-twice.md"])
def test_every_test_that_is_named_exists(name: str) -> None:
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    named = re.findall(r"`(test_\w+)`", (ROOT / "docs" / name).read_text())
    assert named
    assert [name for name in named if f"def {name}(" not in tests] == []


def test_every_situation_in_which_code_may_run_twice_names_its_test() -> None:
    table, tests = (ROOT / "docs/when-twice.md").read_text().split("\n## The tests\n")
    situations = re.findall(r"(?m)^\| (\d+)\. ", table)
    assert situations == [str(n) for n in range(1, len(situations) + 1)]
    assert re.findall(r"(?m)^(\d+)\. `test_", tests) == situations


def rows(heading: str, document: str) -> dict[str, list[str]]:
    """The table under a heading of a document: its cells by the name in the first one."""
    section = document.partition(f"\n{heading}\n")[2].partition("\n#")[0]
    cells = [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in section.splitlines() if line[:2] == "| "
    ]
    return {row[0].strip("|` "): row[1:] for row in cells[1:]}


def test_every_public_name_is_documented() -> None:
    documented = CONSUMER + HTTP_AND_FUNCTIONS + (ROOT / "docs/symptoms.md").read_text()
    names = idempotent_receiver.__all__
    assert [name for name in names if f"`{name}" not in documented and f" {name}" not in documented] == []


def test_every_field_of_a_message_that_a_function_may_use_is_documented() -> None:
    plumbing = {"raw_body", "receipt_handle", "record_id", "first_received_at", "fifo", "rest"}
    fields = {name for name in {*dir(Message), *Message.__dataclass_fields__} if not name.startswith("_")}
    assert [
        name for name in sorted(fields - plumbing) if f"`{name}`" not in CONSUMER and f"`{name}()`" not in CONSUMER
    ] == []


WAYS_IN = [(sqs_consumer, CONSUMER), (http_endpoint, HTTP_AND_FUNCTIONS), (idempotent, HTTP_AND_FUNCTIONS)]


@pytest.mark.parametrize(("way_in", "document"), WAYS_IN)
def test_every_option_of_a_way_in_is_documented(way_in: Callable[..., Any], document: str) -> None:
    options = inspect.signature(way_in).parameters
    assert rows(f"### `{way_in.__name__}(store, *, …)`", document).keys() == options.keys() - {"store"}


@pytest.mark.parametrize(("way_in", "document"), WAYS_IN)
def test_defaults_of_options_are_as_documented(way_in: Callable[..., Any], document: str) -> None:
    options = inspect.signature(way_in).parameters
    for name, (default, *_) in rows(f"### `{way_in.__name__}(store, *, …)`", document).items():
        value = options[name].default
        if default.startswith("`") and not default.endswith(")`"):
            shown = f'"{value}"' if isinstance(value, str) else getattr(value, "__name__", value)
            assert default == f"`{shown}`", name


def test_every_parameter_of_the_template_is_documented_with_its_default() -> None:
    parameters = load()["Parameters"]
    documented = rows("## Parameters", DEPLOYING)
    assert list(documented) == list(parameters)
    for name, parameter in parameters.items():
        default = str(parameter["Default"])
        assert documented[name][0] == (f"`{default}`" if default else "none"), name


def test_every_module_is_on_the_map() -> None:
    """A room of its own that is named stands for what is in it."""
    map_of_modules = (ROOT / "docs/architecture.md").read_text()
    library = ROOT / "src/idempotent_receiver"
    rooms = [folder for folder in library.glob("operations/*") if f"`{folder.name}/`" in map_of_modules]
    modules = [path for path in library.rglob("*.py") if not path.name.startswith("__") and path.parent not in rooms]
    assert len(rooms) == 4
    assert [path.name for path in sorted(modules) if f"`{path.name}`" not in map_of_modules] == []


def test_the_tests_of_a_promise_are_where_the_map_says() -> None:
    """Those that its section of the guarantees names; and each file or folder that the map names has tests."""
    architecture = (ROOT / "docs/architecture.md").read_text()
    table = rows("## Where a promise is tested", architecture)
    named = re.findall(r"`((?:tests|harness|src)/.*?)`", architecture.partition("\n## Where a promise is tested\n")[2])
    assert [each for each in named if not (ROOT / each).exists()] == []
    sections = re.split(r"(?m)^## ", (ROOT / "docs/guarantees.md").read_text())
    promises = {section.splitlines()[0]: re.findall(r"`(test_\w+)`", section) for section in sections}
    proved = {title: names for title, names in promises.items() if title[0].isdigit() or title == "Without claims"}
    assert [title for title in proved if title not in table] == []
    for title, names in proved.items():
        places = [ROOT / each for each in re.findall(r"`(.*?)`", " ".join(table[title]))]
        texts = ["\n".join(map(Path.read_text, [*each.rglob("test_*.py")] or [each])) for each in places]
        assert all("def test_" in text for text in texts), title
        assert [name for name in names if not any(f"def {name}(" in text for text in texts)] == [], title


def test_the_speed_that_is_claimed_is_what_was_measured() -> None:
    """By the benchmark's last run, the price of a transaction being named in the same sentence."""
    sentences = [sentence for sentence in " ".join(LIMITS.split()).split(". ") if "times sooner" in sentence]
    (claimed,) = sentences
    assert "`Transaction`" in claimed
    plain, transactional = (int(times) for times in re.findall(r"more than (\d+) times sooner", claimed))
    cells = {cell["name"]: cell["subjects"] for cell in json.loads(RESULTS.read_text())["cells"]}

    def measured(cell: str) -> float:
        ours, theirs = (cells[cell][subject]["wall_ms"]["median"] for subject in ("ours", "powertools"))
        return float(theirs / ours)

    assert measured("100 fresh") > plain
    assert measured("100 fresh, each with a write of its own") > transactional


@pytest.mark.parametrize(
    ("document", "name", "report", "results"),
    [
        ("README.md", "comparison", comparison, RESULTS),
        ("docs/scale.md", "results outside Lambda", outside.report, ROOT / "benchmarks/outside.json"),
    ],
)
def test_the_figures_are_those_of_the_benchmarks_last_run(
    document: str, name: str, report: Callable[[Any], str], results: Path
) -> None:
    begin, end = marks(name)
    told = (ROOT / document).read_text().partition(begin)[2].partition(end)[0].strip()
    assert told == report(json.loads(results.read_text()))
