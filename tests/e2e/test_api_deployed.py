"""The deployed API does what its page says, by the page's own commands; and without its wrapper it does not."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from harness.caller import api_url
from harness.cloud import ACCOUNT, REGION, ROOT
from tests.e2e.deployed import Deployed, eventually

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.e2e.conftest import Deploy

PAGE = (ROOT / "docs/example.md").read_text()
SECTION = PAGE.partition("\n## Over HTTP\n")[2].partition("\n## ")[0]
SET_UP, SEVEN, AT_ONCE, REFUSED, WITHOUT_HEADER, STATE = re.findall(r"(?ms)^```sh\n(.*?)^```$", SECTION)

CONTROL = """
from uuid import uuid4

from app import shipped_api as shipped
from app.routes import served
from idempotent_receiver import Transaction


def plain(function):
    def handle(event, context):
        tx = Transaction()
        answer = function(event, context, tx)
        (put,) = tx.actions
        item = {name: {"S": value} for name, value in put.arguments["Item"].items()}
        shipped.service.dynamodb.put_item(TableName=put.arguments["TableName"], Item=item)
        return answer

    return handle


lambda_handler = served(shipped.service, plain, new_id=lambda: uuid4().hex * 2)
"""
"""The same API without the wrapper: every request is accepted."""

SLOW_OR_DYING = """
import functools
import json
import os
import time

from app import shipped_api as shipped
from app.routes import served
from idempotent_receiver import current_claim


def moody(function):
    @functools.wraps(function)
    def handle(event, context, tx):
        amount = json.loads(event["body"])["amount"]
        if amount == 6:
            time.sleep(5)
        answer = function(event, context, tx)
        if amount == 13 and current_claim().attempt == 1:
            os._exit(1)
        return answer

    return handle


lambda_handler = served(shipped.service, lambda function: shipped.idempotent_handler(moody(function)))
"""
"""The shipped API, slow to accept 6 cents, and dead once it has sent 13 on their way, at the first attempt."""

PATIENT = {"VisibilityTimeout": 20}
"""So that messages that a busy machine did not start in time are redelivered while the test waits."""


@dataclass(frozen=True)
class Line:
    """What one curl has printed."""

    body: dict[str, Any]
    status: int
    replayed: bool


def typed(bank: Deployed, block: str, credentials: tuple[str, str] = (ACCOUNT, "test")) -> list[Line]:
    """Type a block of the page into a shell in which what precedes it was typed, for this stack."""
    key_id, secret = credentials
    variables = {
        **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
        "AWS_ACCESS_KEY_ID": key_id,
        "AWS_SECRET_ACCESS_KEY": secret,
        "AWS_DEFAULT_REGION": REGION,
        "API_URL": api_url(bank.stack, bank.aws.endpoint_url) or "",
        "no_proxy": "*",
    }
    script = SET_UP.replace(". .build/cloud.env\n", "") + block
    done = subprocess.run(
        ["sh", "-euc", script], env=variables, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = re.findall(r"(\{.*?\}) (\d{3}) replayed=(\w*)\n", done.stdout)
    assert "".join(f"{body} {status} replayed={replayed}\n" for body, status, replayed in found) == done.stdout
    return [Line(json.loads(body), int(status), replayed == "true") for body, status, replayed in found]


def ids(lines: Sequence[Line]) -> set[str]:
    return {line.body["transfer_id"] for line in lines if line.status == 202}


def opened(bank: Deployed) -> Deployed:
    for account, balance in (("alice", 100_000), ("bob", 0)):
        bank.open_account(account, balance)
    return bank


@pytest.fixture(scope="module")
def bank(deployed: Deploy) -> Deployed:
    """The API as it is shipped."""
    return opened(deployed("api", values=PATIENT))


@pytest.fixture(scope="module")
def moody(deployed: Deploy) -> Deployed:
    return opened(deployed("moody", values=PATIENT, api_code=SLOW_OR_DYING))


def posted(bank: Deployed) -> int:
    """What has come to bob, once everything has come."""
    bank.drained(seconds=60)
    return bank.balance("bob")


def test_seven_requests_make_five_transfers_and_two_replays_and_without_the_wrapper_seven(
    deployed: Deploy, bank: Deployed
) -> None:
    before = posted(bank)
    lines = typed(bank, SEVEN)
    assert [line.status for line in lines] == [202] * 7
    assert [line.replayed for line in lines] == [False] * 5 + [True] * 2
    assert len(ids(lines)) == 5
    assert lines[4].body == lines[5].body == lines[6].body
    assert posted(bank) - before == 1 + 2 + 3 + 4 + 5

    control = opened(deployed("control", values=PATIENT, api_code=CONTROL))
    lines = typed(control, SEVEN)
    assert [(line.status, line.replayed) for line in lines] == [(202, False)] * 7
    assert len(ids(lines)) == 7
    assert posted(control) == 1 + 2 + 3 + 4 + 3 * 5


def test_keyed_by_payload_the_same_seven_need_no_header(deployed: Deploy) -> None:
    by_payload = opened(deployed("payload", values=PATIENT, api={"RequestKey": "payload"}))
    lines = typed(by_payload, WITHOUT_HEADER)
    assert [line.status for line in lines] == [202] * 7
    assert Counter(line.replayed for line in lines) == {False: 5, True: 2}
    assert len(ids(lines)) == 5
    assert posted(by_payload) == 1 + 2 + 3 + 4 + 5


def test_in_parallel_there_is_one_transfer_and_the_others_are_told_to_wait(moody: Deployed) -> None:
    before = posted(moody)
    lines = typed(moody, AT_ONCE)
    assert Counter(line.status for line in lines) == {202: 1, 409: 3}
    assert posted(moody) - before == 6
    (again,) = typed(moody, AT_ONCE.partition("\n")[2].partition(" &")[0] + "\n")
    assert (again.status, again.replayed) == (202, True)


def test_another_payload_under_a_used_key_is_422_and_no_key_400(bank: Deployed) -> None:
    typed(bank, SEVEN)
    before = posted(bank)
    assert [line.status for line in typed(bank, REFUSED)] == [422, 400]
    assert posted(bank) == before


def test_the_state_of_a_transfer_is_asked_for_by_its_id(bank: Deployed) -> None:
    (asked,) = eventually(lambda: typed(bank, STATE), lambda lines: lines[0].body["state"] != "accepted", what="posted")
    assert (asked.status, asked.body["state"], asked.body["amount"]) == (200, "posted", 7)


def test_two_tenants_with_one_key_make_two_transfers(bank: Deployed) -> None:
    iam = bank.aws.client("iam")
    before, lines = posted(bank), []
    for name in ("shop", "market"):
        iam.create_user(UserName=f"{name}-{bank.stack.name}")
        made = iam.create_access_key(UserName=f"{name}-{bank.stack.name}")["AccessKey"]
        command = "post --header 'Idempotency-Key: order-of-two' --json \"$(transfer 7)\"\n"
        lines += typed(bank, command * 2, (made["AccessKeyId"], made["SecretAccessKey"]))
    assert [(line.status, line.replayed) for line in lines] == [(202, False), (202, True)] * 2
    assert len(ids(lines)) == 2
    assert posted(bank) - before == 14


def test_a_worker_that_dies_between_its_message_and_its_answer_makes_no_second_transfer(moody: Deployed) -> None:
    """Its claim is taken over at its lease's end, and sends the message again, under the same key."""
    before = posted(moody)
    command = "post --header 'Idempotency-Key: order-13' --json \"$(transfer 13)\"\n"
    script = command.replace("post", "post --output /dev/null", 1)
    with pytest.raises(AssertionError, match="502"):
        typed(moody, script)
    assert posted(moody) - before == 13, "the message was on its way"
    assert [line.status for line in typed(moody, command)] == [409]

    (line,) = eventually(
        lambda: typed(moody, command), lambda lines: lines[0].status != 409, what="its lease is over", seconds=40
    )

    assert (line.status, line.replayed) == (202, False)
    assert posted(moody) - before == 13
    sent = [json.dumps(call.arguments) for call in moody.api_calls if call.operation == "SendMessage"]
    first, second = [each for each in sent if line.body["transfer_id"] in each]
    assert first == second, "key and body, to the byte"
