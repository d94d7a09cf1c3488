"""Takes each refund off its customer's total, once."""

import os

from idempotent_receiver import DynamoDBStore, Transaction, sqs_consumer


@sqs_consumer(DynamoDBStore(os.environ["RECORDS_TABLE"], "refunds"))
def lambda_handler(refund: dict, tx: Transaction) -> None:
    tx.update(
        TableName=os.environ["TOTALS_TABLE"],
        Key={"customer": refund["customer"]},
        UpdateExpression="ADD cents :cents",
        ExpressionAttributeValues={":cents": -refund["cents"]},
    )
