"""Large results in S3: kept before the completion, read back as if they had been in the record."""

from __future__ import annotations

import gzip
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, IncompleteReadError, NoCredentialsError
from botocore.stub import Stubber
from moto import mock_aws

from idempotent_receiver import (
    IdempotencyError,
    ResultUnavailable,
    S3Results,
    StoreUnavailable,
    Transaction,
    http_endpoint,
    idempotent,
)
from idempotent_receiver.handler.results import ResultGone
from tests.consumers import controlled
from tests.contexts import Context
from tests.counting_store import CountingStore
from tests.manual_clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGE = "ü" * 300_000
"""600,000 bytes."""


@pytest.fixture
def s3() -> Iterator[Any]:
    with mock_aws():
        client = boto3.client(
            "s3", region_name="us-east-1", aws_access_key_id="testing", aws_secret_access_key="testing"
        )
        client.create_bucket(Bucket="results")
        yield client
        client.close()


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


def large(store: CountingStore, s3: Any, **options: Any) -> Any:
    results = S3Results("results", s3, **options)

    @idempotent(store, key=str, lease_seconds=60, clock=ManualClock(), results=results)
    def work(key: str) -> str:
        return LARGE

    return work


def objects(s3: Any) -> list[str]:
    return [each["Key"] for each in s3.list_objects_v2(Bucket="results").get("Contents", [])]


def test_a_large_result_is_kept_compressed_and_encrypted_and_read_back(store: CountingStore, s3: Any) -> None:
    work = large(store, s3)

    assert work("1") == work("1") == LARGE
    (key,) = objects(s3)
    held = s3.get_object(Bucket="results", Key=key)
    assert held["ServerSideEncryption"] == "AES256"
    assert len(body := held["Body"].read()) < 10_000
    assert json.loads(gzip.decompress(body)) == LARGE
    assert len(json.dumps(store.items)) < 1_000


def test_it_may_be_encrypted_under_a_key_of_ones_own(store: CountingStore, s3: Any) -> None:
    large(store, s3, kms_key_id="alias/results", prefix="kept/")("1")

    (key,) = objects(s3)
    assert key.startswith("kept/")
    held = s3.head_object(Bucket="results", Key=key)
    assert (held["ServerSideEncryption"], held["SSEKMSKeyId"]) == ("aws:kms", "alias/results")


def test_each_claim_writes_under_a_name_of_its_own(store: CountingStore, s3: Any) -> None:
    """A worker that lost its claim never overwrites the winner's object, and its own does no harm."""
    work = large(store, s3)
    store.down = {"replace", "read"}
    with pytest.raises(Exception, match="could not be recorded"):
        work("1")
    store.down = set()
    store.items["tests#1"] |= {"in_progress_expiration": 0}

    assert work("1") == LARGE
    assert len(objects(s3)) == 2


def test_a_small_result_stays_in_the_record(store: CountingStore, s3: Any) -> None:
    @idempotent(store, key=str, lease_seconds=60, clock=ManualClock(), results=S3Results("results", s3))
    def work(key: str) -> str:
        return "small"

    assert work("1") == work("1") == "small"
    assert objects(s3) == []


def test_an_object_that_is_gone_is_named(store: CountingStore, s3: Any) -> None:
    work = large(store, s3)
    work("1")
    (key,) = objects(s3)
    s3.delete_object(Bucket="results", Key=key)

    with pytest.raises(ResultUnavailable, match=f"s3://results/{key}, but S3 answered NoSuchKey"):
        work("1")


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """A client whose answers are stubbed."""
    client = boto3.client("s3", region_name="us-east-1", aws_access_key_id="testing", aws_secret_access_key="testing")
    yield client
    client.close()


PLACE = {"result": "s3", "bucket": "results", "key": "results/owned/1.json.gz"}


@pytest.mark.parametrize(
    ("code", "status", "retry"),
    [
        ("SlowDown", 503, True),
        ("InternalError", 500, True),
        ("AccessDenied", 403, True),
        ("ExpiredToken", 400, True),
        ("RequestTimeout", 400, True),
        ("RequestTimeTooSkewed", 403, True),
        ("TooManyRequests", 429, True),
        ("KMS.DisabledException", 400, True),
        ("InvalidObjectState", 403, True),
        ("PermanentRedirect", 301, True),
        ("", 400, True),
        ("NoSuchKey", 404, False),
        ("NoSuchBucket", 404, False),
        ("404", 404, False),
        ("NoSuchKey", 400, False),
    ],
)
def test_only_what_s3_says_is_absent_is_gone(client: Any, code: str, status: int, retry: bool) -> None:
    """A refusal says nothing of the object. Without `s3:ListBucket`, an absent one is refused as well."""
    stubber = Stubber(client)
    stubber.add_client_error("get_object", code, "said", status)

    with stubber, pytest.raises(ResultGone, match=f"s3://results/{PLACE['key']}, but S3 answered {code}") as raised:
        S3Results("results", client).get(PLACE, "owned/")
    assert raised.value.retry is retry


@pytest.mark.parametrize(
    "error",
    [
        EndpointConnectionError(endpoint_url="https://s3"),
        NoCredentialsError(),
        IncompleteReadError(actual_bytes=1, expected_bytes=2),
        ClientError({}, "GetObject"),
    ],
)
def test_no_answer_does_not_say_that_a_result_is_gone(
    client: Any, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "get_object", raising(error))

    with pytest.raises(ResultGone) as raised:
        S3Results("results", client).get(PLACE, "owned/")
    assert raised.value.retry


def raising(error: Exception) -> Any:
    def call(**_: Any) -> Any:
        raise error

    return call


def s3_error(code: str, status: int) -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "GetObject")  # type: ignore[typeddict-item]


@pytest.mark.parametrize(("code", "status"), [("AccessDenied", 503), ("NoSuchKey", 410)])
def test_a_bucket_that_does_not_answer_is_not_the_last_word_over_http(
    store: CountingStore, s3: Any, code: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The response is still there: the client is asked to come again, and gets it then."""
    clock = ManualClock()

    @http_endpoint(store, clock=clock, results=S3Results("results", s3))
    def respond(event: Any, context: Any) -> Any:
        return {"statusCode": 201, "body": LARGE}

    event = {"httpMethod": "POST", "path": "/", "headers": {"Idempotency-Key": "k"}}
    assert respond(event, Context(clock))["statusCode"] == 201
    with monkeypatch.context() as away:
        away.setattr(s3, "get_object", raising(s3_error(code, 404 if status == 410 else 403)))
        answer = respond(event, Context(clock))
    assert (answer["statusCode"], "Retry-After" in answer["headers"]) == (status, status == 503)
    told = "The request took effect, but its response cannot be read now. Try again with the same key."
    problem = json.loads(answer["body"])
    assert ((problem["title"], problem["detail"]) == ("Service Unavailable", told)) is (status == 503)
    assert respond(event, Context(clock))["body"] == LARGE


def test_a_bucket_that_does_not_answer_is_not_the_last_word_for_a_function(
    store: CountingStore, s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its caller may call again, as after an answer that the table did not give, and nothing ran this time."""
    work = large(store, s3)
    work("1")
    (key,) = objects(s3)

    with monkeypatch.context() as away:
        away.setattr(s3, "get_object", raising(s3_error("AccessDenied", 403)))
        told = f"the call took effect; the result should be in s3://results/{key}, but S3 answered AccessDenied"
        with pytest.raises(IdempotencyError, match=told) as raised:
            work("1")
    assert isinstance(raised.value, StoreUnavailable)
    assert not raised.value.ran
    assert work("1") == LARGE


@pytest.mark.parametrize(
    "cut", [lambda body: b"not gzip", lambda body: body[:-9], lambda body: b"", lambda body: gzip.compress(b"\xff")]
)
def test_an_object_that_is_damaged_is_named(store: CountingStore, s3: Any, cut: Any) -> None:
    """Somebody has written over it: no retry brings the result back."""
    clock = ManualClock()

    @http_endpoint(store, clock=clock, results=S3Results("results", s3))
    def respond(event: Any, context: Any) -> Any:
        return {"statusCode": 201, "body": LARGE}

    work = large(CountingStore(), s3)
    event = {"httpMethod": "POST", "path": "/", "headers": {"Idempotency-Key": "k"}}
    respond(event, Context(clock))
    work("1")
    for key in objects(s3):
        s3.put_object(Bucket="results", Key=key, Body=cut(s3.get_object(Bucket="results", Key=key)["Body"].read()))

    assert respond(event, Context(clock))["statusCode"] == 410
    with pytest.raises(ResultUnavailable, match=r"the call took effect; the object s3://results/.* is not a result"):
        work("1")


def test_a_bucket_that_refuses_a_result_undoes_nothing(store: CountingStore, s3: Any) -> None:
    """The first caller gets the result, and a replay says that it was not kept."""

    @idempotent(store, key=str, lease_seconds=60, clock=ManualClock(), results=S3Results("nowhere", s3))
    def work(key: str) -> str:
        return LARGE

    first = None
    with suppress(ClientError):
        first = work("1")
    assert first == LARGE
    with pytest.raises(ResultUnavailable, match="could not be stored elsewhere"):
        work("1")


def test_only_what_the_records_own_claims_have_written_is_read(store: CountingStore, s3: Any) -> None:
    work = large(store, s3)
    work("1")
    work("2")
    store.items["tests#1"]["data"] = store.items["tests#2"]["data"]

    with pytest.raises(ResultUnavailable, match="not this function's location"):
        work("1")


@pytest.mark.parametrize("place", [{}, {"bucket": "results"}, {"bucket": "results", "key": ""}])
def test_a_place_without_a_name_is_none_of_its_results(s3: Any, place: dict[str, str]) -> None:
    with pytest.raises(ResultGone, match="not this function's location"):
        S3Results("results", s3).get(place, "owned/")


@pytest.mark.parametrize(
    ("option", "wrong"),
    [("bucket", None), ("bucket", ""), ("prefix", None), ("prefix", 5), ("client", None), ("kms_key_id", "")],
)
def test_what_could_keep_no_result_is_refused_at_set_up(s3: Any, option: str, wrong: Any) -> None:
    """Usually a variable that is not set: large results would be lost, one by one, after their effects."""
    with pytest.raises((TypeError, ValueError), match=rf"^{option} must be"):
        S3Results(**{"bucket": "results", "client": s3, option: wrong})


def test_a_client_of_another_service_is_refused_at_set_up() -> None:
    with pytest.raises(TypeError, match=r"^client must be a boto3 client for s3"):
        S3Results("results", boto3.client("sqs", region_name="us-east-1"))  # type: ignore[arg-type]


def test_a_result_that_looks_like_a_marker_is_a_result(store: CountingStore, s3: Any) -> None:
    forged = {"idempotent-receiver": {"result": "s3", "bucket": "results", "key": "anything"}}

    @idempotent(store, key=str, lease_seconds=60, clock=ManualClock(), results=S3Results("results", s3))
    def work(key: str) -> dict[str, dict[str, str]]:
        return forged

    assert work("1") == work("1") == forged


def test_without_a_bucket_now_the_place_is_named(store: CountingStore, s3: Any) -> None:
    work = large(store, s3)
    work("1")
    work = idempotent(store, key=str, lease_seconds=60, clock=ManualClock())(work.__wrapped__)

    with pytest.raises(ResultUnavailable, match="this function has no"):
        work("1")


def test_a_messages_large_result_is_dropped_and_the_message_is_done(store: CountingStore) -> None:
    """With its transaction, and beside messages whose results are small."""

    @controlled(store, clock=ManualClock())
    def consumer(body: str, tx: Transaction) -> str:
        tx.put(TableName="effects", Item={"id": body})
        return LARGE if body == "large" else body

    event = {"Records": [{"messageId": f"m-{body}", "body": body} for body in ("small", "large")]}
    assert consumer(event, Context(ManualClock())) == {"batchItemFailures": []}

    assert len(store.tables["effects"].items) == 2
    told = {id: item["data"] for id, item in store.items.items()}
    assert told["tests#m-small"] == '"small"'
    (marker,) = json.loads(told["tests#m-large"]).values()
    assert marker["result"] == "dropped"
