"""The consumer of a project that `receiver init orders` made, as a CDK app (docs/component.md, "With the CDK")."""  # noqa: INP001  # an app, not a package

from aws_cdk import App, CfnOutput, CfnStack, Duration, Stack
from aws_cdk.aws_dynamodb import (
    Attribute,
    AttributeType,
    BillingMode,
    PointInTimeRecoverySpecification,
    Table,
)
from aws_cdk.aws_lambda import Architecture, Code, Function, Runtime
from aws_cdk.aws_lambda_event_sources import SqsEventSource
from aws_cdk.aws_logs import LogGroup, RetentionDays
from aws_cdk.aws_s3_assets import Asset
from aws_cdk.aws_sqs import DeadLetterQueue, Queue, QueueEncryption

app = App()
stack = Stack(app, "orders")


def queue_of(id: str, **properties) -> Queue:
    """An encrypted queue that accepts only TLS."""
    return Queue(stack, id, encryption=QueueEncryption.SQS_MANAGED, enforce_ssl=True, **properties)


def table_of(id: str, key: str, **properties) -> Table:
    """An on-demand table with point-in-time recovery."""
    return Table(
        stack,
        id,
        partition_key=Attribute(name=key, type=AttributeType.STRING),
        billing_mode=BillingMode.PAY_PER_REQUEST,
        point_in_time_recovery_specification=PointInTimeRecoverySpecification(point_in_time_recovery_enabled=True),
        **properties,
    )


dead_letters = queue_of("DeadLetterQueue", retention_period=Duration.days(14))
queue = queue_of(
    "Queue",
    visibility_timeout=Duration.seconds(240),
    dead_letter_queue=DeadLetterQueue(queue=dead_letters, max_receive_count=50),
)
records = table_of("Records", "id", time_to_live_attribute="expiration")
totals = table_of("Totals", "customer")
log = LogGroup(stack, "Log", retention=RetentionDays.ONE_MONTH)

function = Function(
    stack,
    "Consumer",
    code=Code.from_asset(".aws-sam/build/Consumer"),
    handler="orders.handler.lambda_handler",
    runtime=Runtime.PYTHON_3_13,
    architecture=Architecture.ARM_64,
    memory_size=512,
    timeout=Duration.seconds(30),
    log_group=log,
    environment={
        "RECORDS_TABLE": records.table_name,
        "TOTALS_TABLE": totals.table_name,
        "DEAD_LETTER_QUEUE_URL": dead_letters.queue_url,
        "POWERTOOLS_SERVICE_NAME": "orders",
    },
)
for action in ("PartiQLInsert", "PartiQLUpdate", "PutItem", "UpdateItem", "BatchGetItem"):
    records.grant(function, f"dynamodb:{action}")
totals.grant_read_write_data(function)
dead_letters.grant(function, "sqs:SendMessage")
function.add_event_source(
    SqsEventSource(
        queue,
        batch_size=25,
        max_batching_window=Duration.seconds(1),
        max_concurrency=10,
        report_batch_item_failures=True,
    )
)

watched = {
    "Stack": "orders",
    "Service": "orders",
    "FunctionName": function.function_name,
    "RoleArn": function.role.role_arn,
    "LogGroup": log.log_group_name,
    "QueueArn": queue.queue_arn,
    "DeadLetterQueueArn": dead_letters.queue_arn,
    "RecordsTable": records.table_name,
}
template = Asset(stack, "WatchTemplate", path="watch.yaml")
watch = CfnStack(stack, "Watch", template_url=template.http_url, parameters=watched)

outputs = {
    "QueueUrl": queue.queue_url,
    "DeadLetterQueueUrl": dead_letters.queue_url,
    "RecordsTable": records.table_name,
    "ConsumerDescription": '{"key":"message_id","payload":{},"retention_days":30,"max_attempts":10}',
    "ConsumerName": function.function_name,
    "ConsumerLogGroup": log.log_group_name,
    "HistoryTable": watch.get_att("Outputs.HistoryTable").to_string(),
    "ArchiveBucket": watch.get_att("Outputs.ArchiveBucket").to_string(),
}
for name, value in outputs.items():
    CfnOutput(stack, name, value=value)
app.synth()
