"""What a template's text says is read, and edited without touching the rest of it."""

from __future__ import annotations

import json

import pytest

from idempotent_receiver.local.template import Template, named_by_id, queues_in

PROJECT = """\
# A project's template
Transform: AWS::Serverless-2016-10-31
Parameters:
  Stage: {Type: String}
Resources:
  Queue: # where messages come
    Type: AWS::SQS::Queue
    Properties:
      # as SQS asks
      VisibilityTimeout: 240 # six times

      RedrivePolicy: {deadLetterTargetArn: !GetAtt DeadLetterQueue.Arn, maxReceiveCount: 5}
  DeadLetterQueue:
    Type: AWS::SQS::Queue
  Fifo:
    Type: AWS::SQS::Queue
    Properties: {FifoQueue: true, QueueName: !Sub '${Stage}-orders.fifo'}
  Perhaps:
    Type: AWS::SQS::Queue
    Properties: {FifoQueue: !If [IsFifo, true, false]}
  Records:
    Type: AWS::DynamoDB::Table
    Properties:
      TableName:
        Fn::Sub: ${Stage}-records
      # what follows
      BillingMode: PAY_PER_REQUEST
  Bare: {Type: AWS::DynamoDB::Table, Properties: {}}
  Consumer:
    Type: AWS::Serverless::Function
    Properties:
      Environment: {Variables: {TABLE: !Ref Records}}
      Events: {Messages: {Type: SQS, Properties: {Queue: !GetAtt Queue.Arn}}}
  Fn::ForEach::Loop: [Name, [A], {'${Name}Queue': {Type: AWS::SQS::Queue}}]
"""
NAMED = """\
# A project's template
Transform: AWS::Serverless-2016-10-31
Parameters:
  Stage: {Type: String}
Resources:
  Queue: # where messages come
    Type: AWS::SQS::Queue
    Properties:
      # as SQS asks
      QueueName: Queue
      VisibilityTimeout: 240 # six times

      RedrivePolicy: {deadLetterTargetArn: !GetAtt DeadLetterQueue.Arn, maxReceiveCount: 5}
  DeadLetterQueue:
    Properties: {QueueName: DeadLetterQueue}
    Type: AWS::SQS::Queue
  Fifo:
    Type: AWS::SQS::Queue
    Properties: {FifoQueue: true, QueueName: Fifo.fifo}
  Perhaps:
    Type: AWS::SQS::Queue
    Properties: {FifoQueue: !If [IsFifo, true, false]}
  Records:
    Type: AWS::DynamoDB::Table
    Properties:
      TableName:
        Records
      # what follows
      BillingMode: PAY_PER_REQUEST
  Bare: {Type: AWS::DynamoDB::Table, Properties: {TableName: Bare}}
  Consumer:
    Type: AWS::Serverless::Function
    Properties:
      Environment: {Variables: {TABLE: !Ref Records}}
      Events: {Messages: {Type: SQS, Properties: {Queue: !GetAtt Queue.Arn}}}
  Fn::ForEach::Loop: [Name, [A], {'${Name}Queue': {Type: AWS::SQS::Queue}}]
"""


def test_tables_and_queues_are_named_by_their_ids_and_nothing_else_is_changed() -> None:
    assert named_by_id(PROJECT) == NAMED
    assert named_by_id(NAMED) == NAMED


def test_a_template_in_json_stays_json() -> None:
    queues = {"A": {"Type": "AWS::SQS::Queue"}, "B": {"Type": "AWS::SQS::Queue", "Properties": {"FifoQueue": True}}}
    named = json.loads(named_by_id(json.dumps({"Resources": queues}, indent=2)))
    assert named["Resources"] == {
        "A": {"Type": "AWS::SQS::Queue", "Properties": {"QueueName": "A"}},
        "B": {"Type": "AWS::SQS::Queue", "Properties": {"FifoQueue": True, "QueueName": "B.fifo"}},
    }


def test_parameters_and_consumers_are_read() -> None:
    assert Template(PROJECT).parameters == {"Stage"}
    assert Template(PROJECT).consumers == ["Consumer"]
    assert (Template("A: b").parameters, Template("A: b").consumers) == (frozenset(), [])


@pytest.mark.parametrize(
    "source", ["!GetAtt Queue.Arn", "!GetAtt [Queue, Arn]", "{'Fn::GetAtt': [Queue, Arn]}", "{'Fn::GetAtt': Queue.Arn}"]
)
@pytest.mark.parametrize("function", ["!Ref F", "{Ref: F}", "!GetAtt F.Arn"])
def test_a_mapping_of_its_own_names_a_consumer_too(source: str, function: str) -> None:
    """In whichever way it is written; one that reads a stream does not."""
    text = f"""
Resources:
  Queue: {{Type: AWS::SQS::Queue}}
  Table: {{Type: AWS::DynamoDB::Table}}
  F: {{Type: AWS::Lambda::Function}}
  G: {{Type: AWS::Lambda::Function}}
  M: {{Type: AWS::Lambda::EventSourceMapping, Properties: {{EventSourceArn: {source}, FunctionName: {function}}}}}
  S:
    Type: AWS::Lambda::EventSourceMapping
    Properties: {{EventSourceArn: !GetAtt Table.StreamArn, FunctionName: !Ref G}}
"""
    assert Template(text).consumers == ["F"]


def test_a_function_with_two_queues_is_one_consumer_and_one_of_another_stack_is_none() -> None:
    """One that is named by its ARN is not in this template."""
    text = """
Resources:
  Queue: {Type: AWS::SQS::Queue}
  F: {Type: AWS::Serverless::Function, Properties: {Events: {Messages: {Type: SQS}}}}
  M: {Type: AWS::Lambda::EventSourceMapping, Properties: {EventSourceArn: !GetAtt Queue.Arn, FunctionName: !Ref F}}
  N: {Type: AWS::Lambda::EventSourceMapping, Properties: {EventSourceArn: !GetAtt Queue.Arn, FunctionName: elsewhere}}
"""
    assert Template(text).consumers == ["F"]


@pytest.mark.parametrize("text", ["Resources: [", "- a", "", "!Ref a: ["])
def test_what_is_no_template_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"the template cannot be read: (it is not|while)"):
        named_by_id(text)


def test_a_queue_that_is_named_by_its_arn_is_this_clouds() -> None:
    """With its URL; other services, and what is not literal, stay."""
    text = """
      Queue: arn:aws:sqs:eu-west-1:123456789012:orders.fifo
      Other: arn:aws-cn:sqs:cn-north-1:210987654321:returns
      QueueUrl: !Sub 'https://sqs.${AWS::Region}.${AWS::URLSuffix}/123456789012/orders.fifo'
      Topic: arn:aws:sns:eu-west-1:123456789012:orders
      Any: !Sub arn:${AWS::Partition}:sqs:${AWS::Region}:${AWS::AccountId}:orders
    """
    assert (
        queues_in(text, "000000000000", "us-east-1")
        == """
      Queue: arn:aws:sqs:us-east-1:000000000000:orders.fifo
      Other: arn:aws:sqs:us-east-1:000000000000:returns
      QueueUrl: !Sub 'https://sqs.${AWS::Region}.${AWS::URLSuffix}/000000000000/orders.fifo'
      Topic: arn:aws:sns:eu-west-1:123456789012:orders
      Any: !Sub arn:${AWS::Partition}:sqs:${AWS::Region}:${AWS::AccountId}:orders
    """
    )
