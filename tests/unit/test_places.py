"""The line that helps: the innermost one of the user's own code, then the one that raised; and codes, never texts."""

from __future__ import annotations

import importlib
import json
import logging
import sys
import urllib.error
from email.message import Message as Headers
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
import requests
from botocore.exceptions import ClientError

from idempotent_receiver import MemoryStore, Transaction, places, sqs_consumer
from idempotent_receiver.errors import Failure, failure_of
from idempotent_receiver.operations.dead_letters.cause import _of_error as cause_of_error
from idempotent_receiver.operations.records import reason_in
from idempotent_receiver.testing import lambda_context, sqs_event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HANDLER = """
import gateway

def charge(order):
    return gateway.post(order)

def charge_with_a_callback(order):
    return gateway.calling(fail)

def fail():
    raise ValueError("card 4111")

def unpack(order):
    return [json_of(each) for each in order]

def json_of(text):
    import json
    return json.loads(text)
"""
LIBRARY = """
def post(order):
    return send(order)

def send(order):
    raise ConnectionError("card 4111")

def calling(callback):
    return callback()
"""


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A handler's module beside a library, in one folder, as `pip install -t` and `sam build` make it."""
    (tmp_path / "orders.py").write_text(HANDLER)
    (tmp_path / "gateway.py").write_text(LIBRARY)
    information = tmp_path / "gateway-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: gateway\nVersion: 1.0\n")
    (information / "RECORD").write_text("gateway.py,sha256=x,1\ngateway-1.0.dist-info/METADATA,,\n")
    monkeypatch.syspath_prepend(tmp_path)
    places._installed.cache_clear()
    yield importlib.import_module("orders")
    for name in ("orders", "gateway"):
        sys.modules.pop(name, None)
    places._installed.cache_clear()


def place_in(function: Callable[..., object], *arguments: object) -> str:
    try:
        function(*arguments)
    except Exception as error:  # noqa: BLE001  # whichever it is
        # As from the library, which calls the handler.
        error.__traceback__ = None if error.__traceback__ is None else error.__traceback__.tb_next
        return str(told_of(error).at)
    pytest.fail("nothing was raised")


def told_of(error: BaseException) -> Failure:
    try:
        return failure_of(error)
    except Exception as unexpected:  # noqa: BLE001  # whichever it is
        pytest.fail(f"the error is hidden by {unexpected!r}")


def test_the_users_own_line_comes_before_the_one_that_raised(task: Any) -> None:
    """Though both lie in one folder: the library belongs to an installed distribution."""
    assert place_in(task.charge, {}) == "orders.charge:5, in gateway.send:6"


def test_what_the_users_own_code_raised_is_one_place(task: Any) -> None:
    """Called back by a library, too."""
    assert place_in(task.charge_with_a_callback, {}) == "orders.fail:11"


def test_pythons_own_modules_are_not_the_users(task: Any) -> None:
    assert place_in(task.unpack, ["{"]).startswith("orders.json_of:18, in json.decoder.raw_decode:")


def test_generated_code_is_nobodys_line(task: Any) -> None:
    """Its file has no path."""
    names = {"__name__": "orders", "fail": task.fail}
    exec(compile("def generated(): raise ValueError", "<string>", "exec"), names)
    task.fail = names["generated"]
    assert place_in(task.charge_with_a_callback, {}) == "orders.charge_with_a_callback:8, in orders.generated:1"


def test_without_a_line_of_the_users_own_there_is_the_one_that_raised(task: Any) -> None:
    gateway = importlib.import_module("gateway")
    assert place_in(gateway.post, {}) == "gateway.send:6"


def test_a_mistake_with_a_transaction_is_at_the_handlers_line() -> None:
    """Not where this library found it out."""
    error = raised_by(lambda: Transaction(own_id="k").put(TableName=3, Item={}), TypeError)  # type: ignore[arg-type]
    assert str(failure_of(error).at).startswith(f"{__name__}.<lambda>:")


def test_a_damaged_distribution_hides_no_error(task: Any) -> None:
    folder = Path(task.__file__).parent
    (folder / "gateway-1.0.dist-info" / "RECORD").write_bytes(b"\xff")
    assert place_in(task.charge, {}) == "gateway.send:6"


def test_distributions_are_read_at_the_first_failure_only(task: Any) -> None:
    """Never by a consumer that does not fail, whose cold start would pay for it."""

    @sqs_consumer(MemoryStore(), logger=logging.getLogger("places"))
    def handle(body: dict[str, Any]) -> None:
        if body["fails"]:
            task.charge(body)

    handle(sqs_event({"fails": False}), lambda_context())
    assert places._installed.cache_info().misses == 0
    for _ in range(3):
        handle(sqs_event({"fails": True}, {"fails": True}), lambda_context())
    assert places._installed.cache_info().misses == 1


def test_log_record_and_dead_letters_name_the_users_line(task: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Dead letters are grouped by its function, so a group has one cause."""
    store = MemoryStore()

    @sqs_consumer(store, logger=logging.getLogger("places"))
    def handle(body: dict[str, Any]) -> None:
        task.charge(body)

    handle(sqs_event({}), lambda_context())

    line = next(vars(each) for each in caplog.records if each.message == "failed, will be retried")
    assert line["at"] == "orders.charge:5, in gateway.send:6"
    assert line["reason"] == "ConnectionError at orders.charge:5, in gateway.send:6"
    (record,) = store.read([line["message_id"]])
    assert record is not None
    error = json.loads(str(record.error))
    assert error == {"type": "ConnectionError", "at": line["at"]}
    assert cause_of_error(str(reason_in(error)), error["type"], error["at"]).group == "ConnectionError@orders.charge"


def raised_by(function: Callable[[], object], kind: type[Exception]) -> Exception:
    with pytest.raises(kind) as raised:
        function()
    return raised.value


def client_error(code: object, **answer: Any) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "card 4111"}, **answer}, "PutItem")  # type: ignore[arg-type]


REASONS = [
    {
        "reason": "TableWriteProvisionedThroughputExceeded",
        "resource": "arn:aws:dynamodb:us-east-1:123456789012:table/a",
    },
    {"reason": "card 4111"},
]


def of_requests() -> Exception:
    response = requests.Response()
    response.status_code = 404
    response.url = "https://example.com/4111"
    return raised_by(response.raise_for_status, requests.HTTPError)


class OfAiohttp(Exception):
    def __init__(self, status: object) -> None:
        super().__init__("card 4111")
        self.status = status


class Hostile(Exception):
    @property
    def response(self) -> NoReturn:
        raise SystemExit


CODES = [
    (client_error("AccessDenied"), "AccessDenied"),
    (client_error("NoSuchKey", ResponseMetadata={"HTTPStatusCode": 404}), "NoSuchKey, HTTP 404"),
    (client_error("AWS.SimpleQueueService.NonExistentQueue"), "AWS.SimpleQueueService.NonExistentQueue"),
    (client_error("404"), "404"),
    (client_error("E" * 64), "E" * 64),
    *((client_error(wrong), None) for wrong in ("E" * 65, "card 4111", "a/b", "é", "", None, 3)),
    (client_error("X", ThrottlingReasons=REASONS), "X, TableWriteProvisionedThroughputExceeded"),
    (client_error("X", throttlingReasons=REASONS * 2), "X, TableWriteProvisionedThroughputExceeded"),
    (client_error("X", ThrottlingReasons=[{"reason": f"R{each}"} for each in range(100)]), "X, R0, R1, R2"),
    (client_error("X", ThrottlingReasons=3), None),
    (urllib.error.HTTPError("https://example.com/4111", 502, "4111", Headers(), None), "HTTP 502"),
    (of_requests(), "HTTP 404"),
    (OfAiohttp(429), "HTTP 429"),
    *((OfAiohttp(wrong), None) for wrong in (4111, 99, True, "503", None)),
    (Hostile(), None),
    (OSError(13, "4111"), None),
]


def test_a_class_named_after_its_code_names_it_once() -> None:
    """As botocore makes them of its model."""
    named = type("NoSuchKey", (ClientError,), {})({"Error": {"Code": "NoSuchKey"}}, "GetObject")
    assert failure_of(named).reason == "NoSuchKey"


@pytest.mark.parametrize(("error", "codes"), CODES, ids=str)
def test_codes_and_a_status_are_named_and_no_text(error: Exception, codes: str | None) -> None:
    """A code is letters, digits and dots, 64 at most: AWS's are, and a text is not."""
    failure = told_of(error)
    name = type(error).__qualname__
    assert failure.codes == codes
    assert failure.reason.startswith(name if codes is None else f"{name} ({codes})")
    assert "4111" not in failure.to_json() + failure.reason
    assert reason_in(json.loads(failure.to_json())) == failure.reason


def test_an_error_whose_text_is_kept_needs_no_codes() -> None:
    assert failure_of(client_error("AccessDenied"), with_text=True).codes is None
