"""The requests that are sent to one table, and what each response says of the items in it."""

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from idempotent_receiver.dynamodb import errors, statements
from idempotent_receiver.dynamodb.client import default_client
from idempotent_receiver.dynamodb.errors import ApiCall, UnreadableAnswer, receive
from idempotent_receiver.dynamodb.raw_statements import RawStatements, accept_raw_statements
from idempotent_receiver.dynamodb.statements import Replacement, record_in, typed
from idempotent_receiver.dynamodb.transactions import cancelled
from idempotent_receiver.protocol.record import Record
from idempotent_receiver.protocol.store import ActionFailed, Applied, Unknown, Written
from idempotent_receiver.protocol.transaction import Action

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import BatchStatementRequestTypeDef, TransactWriteItemTypeDef, UpdateTypeDef

MOST_RESENDS: Final = 4
"""How often keys that BatchGetItem left unprocessed are asked for again: 100 items of 400 KB need three requests."""

Item = dict[str, str | int]
"""A record's attributes, as plain values."""


class Requests:
    """The requests to one table. Without a `client`, one is built once, on first use, by whichever thread is first."""

    def __init__(self, table: str, client: "DynamoDBClient | None") -> None:
        self.table = table
        self._client = client
        self._building = threading.Lock()
        if client is not None:
            accept_raw_statements(client)

    @property
    def client(self) -> "DynamoDBClient":
        """The boto3 client."""
        with self._building:
            if self._client is None:
                self._client = default_client()
                accept_raw_statements(self._client)
            return self._client

    def put(self, item: Item) -> Written:
        """PutItem, if there is none."""
        call = ApiCall("PutItem", self.table, "dynamodb:PutItem")
        return errors.write(
            call,
            lambda: self.client.put_item(
                TableName=self.table,
                Item=dict(zip(item, typed(item.values()), strict=True)),
                ConditionExpression="attribute_not_exists(#id)",
                ExpressionAttributeNames={"#id": "id"},
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            ),
        )

    def update(self, replacement: Replacement) -> Written:
        """UpdateItem, if the record stands as expected."""
        call = ApiCall("UpdateItem", self.table, "dynamodb:UpdateItem")
        return errors.write(call, lambda: self.client.update_item(**self._update_item(replacement)))

    def execute_inserts(self, items: Sequence[Item]) -> list[Written]:
        """BatchExecuteStatement, with an INSERT for each of up to 25 items."""
        inserts: list[BatchStatementRequestTypeDef] = [
            {"Statement": statements.insert(self.table, tuple(item)), "Parameters": typed(item.values())}
            for item in items
        ]
        return self._execute(inserts, "dynamodb:PartiQLInsert")

    def execute_updates(self, replacements: Sequence[Replacement]) -> list[Written]:
        """BatchExecuteStatement, with an UPDATE for each of up to 25 replacements."""
        updates: list[BatchStatementRequestTypeDef] = [
            {
                "Statement": statements.update(self.table, shape),
                "Parameters": typed((*put.values(), id, *standing.values())),
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            }
            for id, shape, put, standing in replacements
        ]
        return self._execute(updates, "dynamodb:PartiQLUpdate")

    def get(self, ids: Sequence[str]) -> dict[str, Record | Unknown]:
        """BatchGetItem, consistent, of up to 100 ids. One without a record has no entry; an unread one is `Unknown`."""
        call = ApiCall("BatchGetItem", self.table, "dynamodb:BatchGetItem")
        found: dict[str, Record | Unknown] = {}
        left: Any = {self.table: {"Keys": [{"id": {"S": id}} for id in ids], "ConsistentRead": True}}
        unread = Unknown(errors.explained("ThrottlingException", call))
        for _ in range(1 + MOST_RESENDS):
            try:
                response = receive(partial(self.client.batch_get_item, RequestItems=left))
                if "Responses" not in response:
                    raise UnreadableAnswer
            except (ClientError, BotoCoreError) as error:
                failed = errors.request_failed(error, call)
                unread = Unknown(failed.why, failed.retry)
                break
            records = [record_in(item) for item in response["Responses"].get(self.table, [])]
            found |= {record.id: record for record in records}
            left = response.get("UnprocessedKeys")
            if not left:
                return found
        return found | {key["id"]["S"]: unread for key in left[self.table]["Keys"]}

    def transact(
        self, replacement: Replacement, token: str, items: "list[TransactWriteItemTypeDef]", actions: Sequence[Action]
    ) -> Written | ActionFailed:
        """TransactWriteItems: the replacement first, then the `items` that the handler's `actions` are."""
        tables = {self.table: None} | {str(action.arguments["TableName"]): None for action in actions}
        permission = "dynamodb:UpdateItem on the records, and what the handler's own actions need"
        call = ApiCall("TransactWriteItems", " or ".join(tables), permission)
        everything: list[TransactWriteItemTypeDef] = [{"Update": self._update_item(replacement)}, *items]
        try:
            receive(lambda: self.client.transact_write_items(TransactItems=everything, ClientRequestToken=token))
        except (ClientError, BotoCoreError) as error:
            if isinstance(error, ClientError) and errors.code_of(error) == "TransactionCanceledException":
                return cancelled(error.response.get("CancellationReasons", []), call, actions)
            return errors.request_failed(error, call)
        return Applied()

    def _update_item(self, replacement: Replacement) -> "UpdateTypeDef":
        """The replacement for UpdateItem, and for a transaction's Update."""
        id, shape, put, standing = replacement
        values = {f":{name}": value for name, value in put.items()}
        values |= {f":expected_{name}": value for name, value in standing.items()}
        return {
            "TableName": self.table,
            "Key": {"id": {"S": id}},
            "UpdateExpression": statements.update_expression(shape),
            "ConditionExpression": statements.condition_expression(shape),
            "ExpressionAttributeNames": {f"#{name}": name for name in ("id", *shape.put, *shape.removed)},
            "ExpressionAttributeValues": dict(zip(values, typed(values.values()), strict=True)),
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }

    def _execute(self, batch: "Sequence[BatchStatementRequestTypeDef]", permission: str) -> list[Written]:
        """Run the statements, each on its own; the answers come in their order."""
        call = ApiCall("BatchExecuteStatement", self.table, permission, partial=True)
        try:
            answer = receive(lambda: self.client.batch_execute_statement(Statements=RawStatements(batch)))
            responses = answer.get("Responses", [])
            if len(responses) != len(batch):
                raise UnreadableAnswer
        except (ClientError, BotoCoreError) as error:
            return [errors.request_failed(error, call)] * len(batch)
        return [Applied() if response.get("Error") is None else _failed(response, call) for response in responses]


def _failed(response: Mapping[str, Any], call: ApiCall) -> Written:
    error = response["Error"]
    # An INSERT never shows what is there; an UPDATE shows it in the error or beside it.
    if error["Code"] in errors.CONFLICTS:
        return errors.conflict({**response, **error})
    return errors.write_failed(error["Code"], call, error.get("Message", ""))
