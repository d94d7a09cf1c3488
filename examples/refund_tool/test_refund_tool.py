"""However often a call of the model is run, Stripe refunds once."""

import boto3
import httpx
import pytest
from moto import mock_aws
from refund_tool import tool_result

CALL = {"type": "tool_use", "id": "toolu_01A09q", "name": "refund", "input": {"payment": "pi_3MtwBw", "cents": 1250}}


@pytest.fixture(autouse=True)
def records(monkeypatch):
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("STRIPE_API_KEY", "sk_test")
    with mock_aws():
        boto3.client("dynamodb").create_table(
            TableName="records",
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        )
        yield


@pytest.fixture
def stripe(monkeypatch):
    """What is to happen to each request, and the idempotency keys that came with them."""
    answers, keys = [], []

    def post(url, *, headers, **request):
        keys.append(headers["Idempotency-Key"])
        if answers and (error := answers.pop(0)):
            raise error
        return httpx.Response(200, json={"id": "re_1Nispe"}, request=httpx.Request("POST", url))

    monkeypatch.setattr(httpx, "post", post)
    return answers, keys


def test_a_call_that_is_run_again_reads_the_first_result(stripe):
    _, keys = stripe
    assert tool_result(CALL) == tool_result(CALL)
    assert len(keys) == 1


def test_a_call_whose_answer_was_lost_is_made_again_with_the_same_key(stripe):
    answers, keys = stripe
    answers.append(httpx.ReadTimeout("no answer"))
    with pytest.raises(httpx.ReadTimeout):
        tool_result(CALL)
    assert tool_result(CALL)["content"] == "re_1Nispe"
    assert keys == [keys[0]] * 2
