"""`receiver local` sees effects on topics, queues and buckets: handlers that are right, and as many that are wrong."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests import ctrl_c
from tests.e2e.test_receiver_local import AT_ONCE, TABLES, TEMPLATE, Ran, begin, ended, project

if TYPE_CHECKING:
    from pathlib import Path

WITH_MORE = (
    TEMPLATE.replace(
        "Resources:\n",
        """Resources:
  Mail: {Type: AWS::SNS::Topic}
  Parcels: {Type: AWS::SQS::Queue}
  Receipts: {Type: AWS::S3::Bucket}
""",
    )
    .replace(
        "          WORD: !Ref Word\n",
        "          WORD: !Ref Word\n          TOPIC: !Ref Mail\n          PARCELS: !Ref Parcels\n"
        "          BUCKET: !Ref Receipts\n",
    )
    .replace("!GetAtt Tables.Outputs.", "!Ref ")
    .replace(
        "  Tables:\n    Type: AWS::CloudFormation::Stack\n    Properties:\n      TemplateURL: ./tables.yaml\n",
        TABLES.partition("Resources:\n")[2].partition("Outputs:")[0],
    )
)
BEGINNING = """
import json, os, uuid, boto3
from idempotent_receiver import DynamoDBStore, Message, Transaction, sqs_consumer

sns, sqs, s3 = boto3.client("sns"), boto3.client("sqs"), boto3.client("s3")
store = DynamoDBStore(os.environ["RECORDS"])

@sqs_consumer(store, sqs=sqs)
def lambda_handler(order: dict, message: Message, tx: Transaction) -> None:
    id, key, queue = order["order_id"], message.idempotency_key, os.environ["PARCELS"]
"""
TAKEN = """
    add = {"UpdateExpression": "ADD taken :one", "ExpressionAttributeValues": {":one": 1}}
    tx.update(TableName=os.environ["PLACED"], Key={"order_id": "stock"}, **add)
"""
MAIL = """
    given = {"key": {"DataType": "String", "StringValue": key}}
    sns.publish(TopicArn=os.environ["TOPIC"], Message="thanks for " + id, MessageAttributes=given)
"""
BULK = """
    bodies = [json.dumps({"half": half, "of": id, "key": f"{key}-{half}"}) for half in range(2)]
    sqs.send_message_batch(QueueUrl=queue, Entries=[{"Id": str(n), "MessageBody": b} for n, b in enumerate(bodies)])
"""
OBJECT = """
    s3.put_object(Bucket=os.environ["BUCKET"], Key=f"{key}.json", Body=json.dumps(order))
"""
RIGHT = {
    "mail": MAIL,
    "stock": TAKEN + "    tx.send(QueueUrl=queue, MessageBody=order)\n",
    "bulk": BULK,
    "object": OBJECT,
}
WRONG = {
    "mail": MAIL.replace(", MessageAttributes=given", ""),
    "stock": TAKEN + "    sqs.send_message(QueueUrl=queue, MessageBody=json.dumps(order))\n",
    "bulk": BULK.replace(', "key": f"{key}-{half}"', ""),
    "object": OBJECT.replace("{key}", "{uuid.uuid4()}"),
}
HANDLERS = {
    **{f"{name}-right": body for name, body in RIGHT.items()},
    **{f"{name}-wrong": body for name, body in WRONG.items()},
    "unseen": "    print(id)\n",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    folder: Path = tmp_path_factory.mktemp("effects")

    def tried(name: str) -> Ran:
        options = ["--json", *(["--accept-unseen"] if name == "unseen" else [])]
        return ended(begin(project(folder / name, BEGINNING + HANDLERS[name], template=WITH_MORE), *options))

    with ctrl_c.heeded(), ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(HANDLERS, pool.map(tried, HANDLERS), strict=True))


@pytest.mark.parametrize("name", RIGHT)
def test_none_of_the_right_handlers_is_refused(runs: dict[str, Ran], name: str) -> None:
    ran = runs[f"{name}-right"]
    assert ran.code == 0, ran.out + ran.err
    assert [(each["verdict"], each["tables"]) for each in ran.messages.values()] == [("once", "once")] * 2
    assert sorted(each["runs"] for each in ran.messages.values()) == [1, 2]


@pytest.mark.parametrize("name", WRONG)
def test_each_of_the_wrong_handlers_is_found_out(runs: dict[str, Ran], name: str) -> None:
    """The message that ran twice is named, and the other is not."""
    ran = runs[f"{name}-wrong"]
    assert ran.code == 1, ran.out + ran.err
    verdicts = {each["runs"]: each["verdict"] for each in ran.messages.values()}
    assert verdicts == {1: "once", 2: "TWICE"}


def test_what_leaves_nothing_to_compare_is_counted_apart_and_accepted_by_who_knows(runs: dict[str, Ran]) -> None:
    ran = runs["unseen"]
    assert (ran.code, ran.answer["once"], ran.answer["unseen"]) == (0, 1, 1), ran.err
