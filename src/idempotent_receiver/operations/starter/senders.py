"""What sends to a new project's queue, if that is an AWS service: its resources, its permission and its messages."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class SendingService(StrEnum):
    """The AWS services that can send to a project's queue."""

    S3 = "s3"
    SNS = "sns"
    EVENTBRIDGE = "eventbridge"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """How a service's messages reach the queue and what they look like.

    `service` is its principal, `envelope` the option that takes the body out of a message; `resources` and `outputs`
    are parts of the template. `arn` is what the queue's policy allows to send, as YAML; `try_it` says how to have a
    message sent, with `<<order>>` for an order and `<<entry>>` for an EventBridge entry with it.
    """

    service: str
    envelope: str | None
    resources: str
    outputs: Mapping[str, str]
    arn: str
    try_it: str
    wrapped: Callable[[Mapping[str, Any], int], dict[str, Any]]
    """A message's body, as the service sends it, for an order and its number."""

    @property
    def statement(self) -> str:
        """The statement of the queue's policy that lets this sender, and nobody else's, send."""
        return f"""\
- Effect: Allow
  Principal: {{Service: {self.service}.amazonaws.com}}
  Action: sqs:SendMessage
  Resource: !GetAtt Queue.Arn
  Condition: {{ArnEquals: {{'aws:SourceArn': {self.arn}}}, StringEquals: {{'aws:SourceAccount': !Ref AWS::AccountId}}}}
"""


def _uploaded(order: Mapping[str, Any], number: int) -> dict[str, Any]:
    key = f"{order['customer']}/order-{number}.json"
    stored = {"key": key, "size": order["cents"], "eTag": f"{number:032}", "sequencer": f"{number:016X}"}
    bucket = {"name": "uploads", "arn": "arn:aws:s3:::uploads"}
    return {
        "Records": [
            {
                "eventVersion": "2.1",
                "eventSource": "aws:s3",
                "awsRegion": "us-east-1",
                "eventTime": "2027-01-15T08:00:00.000Z",
                "eventName": "ObjectCreated:Put",
                "s3": {"s3SchemaVersion": "1.0", "bucket": bucket, "object": stored},
            }
        ]
    }


def _notified(order: Mapping[str, Any], number: int) -> dict[str, Any]:
    return {
        "Type": "Notification",
        "MessageId": f"0b6d1f0e-0001-5000-8000-{number:012}",
        "TopicArn": "arn:aws:sns:us-east-1:123456789012:orders",
        "Message": json.dumps(order),
        "Timestamp": "2027-01-15T08:00:00.000Z",
    }


def _put(order: Mapping[str, Any], number: int) -> dict[str, Any]:
    return {
        "version": "0",
        "id": f"7bf73129-0001-4000-8000-{number:012}",
        "detail-type": "order",
        "source": "orders",
        "account": "123456789012",
        "time": "2027-01-15T08:00:00Z",
        "region": "us-east-1",
        "resources": [],
        "detail": dict(order),
    }


SENDERS = {
    SendingService.S3: Sender(
        service="s3",
        envelope=None,
        resources="""\
Uploads: # S3 sends a message for each object
  Type: AWS::S3::Bucket
  DependsOn: QueuePolicy # a new bucket sends a test message, which counts as completed
  DeletionPolicy: RetainExceptOnCreate
  UpdateReplacePolicy: Retain
  Properties:
    BucketName: !Sub ${AWS::StackName}-${AWS::AccountId} # given, because the queue's policy names it
    NotificationConfiguration:
      QueueConfigurations: [{Event: 's3:ObjectCreated:*', Queue: !GetAtt Queue.Arn}]
""",
        outputs={"UploadsBucket": "!Ref Uploads"},
        arn="!Sub 'arn:${AWS::Partition}:s3:::${AWS::StackName}-${AWS::AccountId}'",
        try_it="Upload a file to the bucket that `make deploy` prints:\n\n"
        "```sh\naws s3 cp README.md s3://BUCKET/alice/README.md\n```\n",
        wrapped=_uploaded,
    ),
    SendingService.SNS: Sender(
        service="sns",
        envelope="Message",
        resources="""\
Topic:
  Type: AWS::SNS::Topic

Subscription:
  Type: AWS::SNS::Subscription
  Properties: {TopicArn: !Ref Topic, Protocol: sqs, Endpoint: !GetAtt Queue.Arn}
""",
        outputs={"TopicArn": "!Ref Topic"},
        arn="!Ref Topic",
        try_it="Publish an order to the topic that `make deploy` prints:\n\n"
        "```sh\naws sns publish --topic-arn TOPIC_ARN --message '<<order>>'\n```\n",
        wrapped=_notified,
    ),
    SendingService.EVENTBRIDGE: Sender(
        service="events",
        envelope="detail",
        resources="""\
Rule: # which events of the default event bus are sent to the queue
  Type: AWS::Events::Rule
  Properties:
    EventPattern: {source: [orders], detail-type: [order]}
    Targets: [{Id: Queue, Arn: !GetAtt Queue.Arn}]
""",
        outputs={},
        arn="!GetAtt Rule.Arn",
        try_it="Put an order on the event bus:\n\n```sh\naws events put-events --entries '<<entry>>'\n```\n",
        wrapped=_put,
    ),
}
