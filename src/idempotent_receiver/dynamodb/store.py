"""The store on DynamoDB: which requests the seam's methods become, and what their answers are worth.

What is asked is decided elsewhere (`record.py`), and so is what follows from an answer (`protocol.py`). The texts of
the requests are in `statements.py`, their values in `items.py`, a transaction's actions in `actions.py`, and what an
error means in `troubles.py`.

======== ==================================================== ====================================================
         one record                                           many
======== ==================================================== ====================================================
insert   PutItem if absent; a conflict brings what is there   BatchExecuteStatement, INSERT, 25 a call
read     BatchGetItem, consistent                             the same, 100 a call
replace  UpdateItem with a condition, likewise                BatchExecuteStatement, UPDATE, 25 a call
commit   TransactWriteItems, the record's Update first
======== ==================================================== ====================================================
"""

import hashlib
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from idempotent_receiver.dynamodb.errors import (
    Request,
    UnreadableAnswer,
    answered,
    code_of,
    explained,
    request_failed,
    written,
)
from idempotent_receiver.dynamodb.raw_statements import RawStatements, accept_raw_statements
from idempotent_receiver.dynamodb.statements import (
    Replacement,
    condition_expression,
    insert,
    replacement_of,
    update,
    update_expression,
)
from idempotent_receiver.dynamodb.transactions import named, transact_items
from idempotent_receiver.dynamodb.values import record_in, typed, unsendable
from idempotent_receiver.options import require_client
from idempotent_receiver.protocol.namespaces import checked, joined
from idempotent_receiver.protocol.record import Change, Record, attributes
from idempotent_receiver.protocol.store import (
    READS_A_CALL,
    WRITES_A_CALL,
    ActionFailed,
    Applied,
    Conflict,
    NotApplied,
    Unknown,
    Written,
)
from idempotent_receiver.protocol.transaction import Action

if TYPE_CHECKING:
    from botocore.config import Config
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import (
        BatchStatementRequestTypeDef,
        TransactWriteItemTypeDef,
        UpdateTypeDef,
    )

MOST_RESENDS: Final = 4
"""How often keys that BatchGetItem left unprocessed are asked for again: 100 items of 400 KB need three calls."""


class _Client:
    """The client of a store and of those named after it: built once, on first use."""

    def __init__(self, client: "DynamoDBClient | None") -> None:
        self._client = client
        self._building = threading.Lock()

    def get(self) -> "DynamoDBClient":
        """The client."""
        with self._building:
            if self._client is None:
                self._client = _tuned_client()
                accept_raw_statements(self._client)
            return self._client


Attributes = dict[str, str | int]
Wish = TypeVar("Wish", Attributes, Replacement)


class DynamoDBStore:
    """A `TransactionalStore` in the DynamoDB table `table_name`, whose only key is the string `id`.

    `namespace` keeps this consumer's keys apart from those of others in the table. Without a `client` one is built on
    first use, with time-outs that suit a function: a request takes some 8 seconds at worst. A client of your own
    bounds a request by its own configuration. Safe to call from several threads.

    Raises ValueError for what is not a table's name (an ARN is none, for PartiQL takes none), and for a namespace that
    is empty or has a `#`.
    """

    def __init__(self, table_name: str, namespace: str | None = None, client: "DynamoDBClient | None" = None) -> None:
        if not table_name or not re.fullmatch(r"[A-Za-z0-9_.-]{1,255}", table_name):
            remedy = " (an ARN is none either)" if table_name else ": is a variable not set?"
            raise ValueError(f"{table_name!r} is not a DynamoDB table's name{remedy}")
        if client is not None:
            require_client(client, "dynamodb", "client")
            accept_raw_statements(client)
        self.table_name = table_name
        self.namespace = checked(namespace)
        self._shared = _Client(client)

    def named(self, name: str) -> Self:
        """The same table and client under a namespace of its own, for one more function: of `orders` it makes
        `orders.{name}`.
        """
        other = copy(self)
        other.namespace = joined(self.namespace, name)
        return other

    @property
    def table_id(self) -> str:
        """What all stores of this table have in common in this process."""
        return self.table_name

    @property
    def client(self) -> "DynamoDBClient":
        """The boto3 client that this store talks by."""
        return self._shared.get()

    def insert(self, records: Sequence[Record]) -> Sequence[Written]:
        """Put each record where its id has none."""
        items = [attributes(record) for record in records]
        whys = [unsendable(record.id, item.values()) for record, item in zip(records, items, strict=True)]
        return _in_chunks(items, whys, self._put, self._execute_inserts)

    def replace(self, changes: Sequence[Change]) -> Sequence[Written]:
        """Write each change whose expected attributes still stand."""
        replacements = [replacement_of(change) for change in changes]
        return _in_chunks(replacements, [*map(_unsendable, replacements)], self._update, self._execute_updates)

    def read(self, ids: Sequence[str]) -> Sequence[Record | Unknown | None]:
        """What is there now, consistently."""
        # What could not be written is not there; asking for it would sink the other keys of its request.
        askable = [id for id in ids if unsendable(id) is None]
        found: dict[str, Record | Unknown] = {}
        for keys in _chunks(askable, READS_A_CALL):
            found.update(self._get(keys))
        return [found.get(id) for id in ids]

    def commit(self, change: Change, actions: Sequence[Action]) -> Written | ActionFailed:
        """Write the change and all actions, or nothing."""
        replacement = replacement_of(change)
        if (why := _unsendable(replacement)) is not None:
            return NotApplied(why, retry=False)
        items = transact_items(actions, table=self.table_name, id=change.new.id)
        if isinstance(items, NotApplied):
            return items
        update = self._update_item(replacement)
        return self._transact([{"Update": update}, *items], _token(change), actions)

    def _put(self, attributes: Attributes) -> Written:
        item = {name: typed(value) for name, value in attributes.items()}
        request = Request("PutItem", self.table_name, "dynamodb:PutItem")
        return _write_one(
            request,
            lambda: self.client.put_item(
                TableName=self.table_name,
                Item=item,
                ConditionExpression="attribute_not_exists(#id)",
                ExpressionAttributeNames={"#id": "id"},
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            ),
        )

    def _update(self, replacement: Replacement) -> Written:
        request = Request("UpdateItem", self.table_name, "dynamodb:UpdateItem")
        return _write_one(request, lambda: self.client.update_item(**self._update_item(replacement)))

    def _update_item(self, replacement: Replacement) -> "UpdateTypeDef":
        """The replacement for UpdateItem, and for a transaction's Update."""
        id, shape, put, standing = replacement
        values = {f":{name}": typed(value) for name, value in put.items()}
        values |= {f":expected_{name}": typed(value) for name, value in standing.items()}
        return {
            "TableName": self.table_name,
            "Key": {"id": typed(id)},
            "UpdateExpression": update_expression(shape),
            "ConditionExpression": condition_expression(shape),
            "ExpressionAttributeNames": {f"#{name}": name for name in ("id", *shape.put, *shape.removed)},
            "ExpressionAttributeValues": values,
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }

    def _execute_inserts(self, items: Sequence[Attributes]) -> list[Written]:
        def statement(item: Attributes) -> "BatchStatementRequestTypeDef":
            text = insert(self.table_name, tuple(item))
            return {"Statement": text, "Parameters": [typed(value) for value in item.values()]}

        return self._execute([statement(item) for item in items], "dynamodb:PartiQLInsert")

    def _execute_updates(self, replacements: Sequence[Replacement]) -> list[Written]:
        def statement(replacement: Replacement) -> "BatchStatementRequestTypeDef":
            id, shape, put, standing = replacement
            return {
                "Statement": update(self.table_name, shape),
                "Parameters": [typed(value) for value in (*put.values(), id, *standing.values())],
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            }

        return self._execute([statement(replacement) for replacement in replacements], "dynamodb:PartiQLUpdate")

    def _execute(self, statements: "Sequence[BatchStatementRequestTypeDef]", permission: str) -> list[Written]:
        """Run up to 25 statements, each for itself; the answers come in their order."""
        request = Request("BatchExecuteStatement", self.table_name, permission, partial=True)
        try:
            answer = answered(lambda: self.client.batch_execute_statement(Statements=RawStatements(statements)))
            responses = answer.get("Responses", [])
            if len(responses) != len(statements):
                raise UnreadableAnswer
        except (ClientError, BotoCoreError) as error:
            return [request_failed(error, request)] * len(statements)
        return [_statement_answer(response, request) for response in responses]

    def _get(self, ids: Sequence[str]) -> dict[str, Record | Unknown]:
        """What is there under up to 100 ids; what is not there has no entry, what is in doubt is `Unknown`."""
        request = Request("BatchGetItem", self.table_name, "dynamodb:BatchGetItem")
        found: dict[str, Record | Unknown] = {}
        left: Any = {self.table_name: {"Keys": [{"id": {"S": id}} for id in ids], "ConsistentRead": True}}
        doubt = Unknown(explained("ThrottlingException", request))
        for _ in range(1 + MOST_RESENDS):
            try:
                response = answered(partial(self.client.batch_get_item, RequestItems=left))
                if "Responses" not in response:
                    raise UnreadableAnswer
            except (ClientError, BotoCoreError) as error:
                failed = request_failed(error, request)
                doubt = Unknown(failed.why, failed.retry)
                break
            for item in response["Responses"].get(self.table_name, []):
                record = record_in(item)
                found[record.id] = record
            left = response.get("UnprocessedKeys")
            if not left:
                return found
        return found | {key["id"]["S"]: doubt for key in left[self.table_name]["Keys"]}

    def _transact(
        self, items: "list[TransactWriteItemTypeDef]", token: str, actions: Sequence[Action]
    ) -> Written | ActionFailed:
        tables = {self.table_name: None} | {str(action.arguments["TableName"]): None for action in actions}
        permission = "dynamodb:UpdateItem on the records, and what the handler's own actions need"
        request = Request("TransactWriteItems", " or ".join(tables), permission)
        try:
            answered(lambda: self.client.transact_write_items(TransactItems=items, ClientRequestToken=token))
        except ClientError as error:
            if code_of(error) == "TransactionCanceledException":
                return _cancelled(error.response.get("CancellationReasons", []), request, actions)
            return request_failed(error, request)
        except BotoCoreError as error:
            return request_failed(error, request)
        return Applied()


def client_config() -> "Config":
    """The configuration of the default client, for a client that comes out of a session of yours."""
    from boto3 import __version__ as boto3_version  # noqa: PLC0415
    from botocore.config import Config  # noqa: PLC0415

    return Config(
        # Whose requests these are, for whoever reads a trail; boto3's own is made anew for each request, a twentieth of
        # a batch's CPU.
        user_agent=f"idempotent-receiver Boto3/{boto3_version}",
        connect_timeout=1,
        read_timeout=3,
        retries={"mode": "standard", "total_max_attempts": 2},
        max_pool_connections=32,
        tcp_keepalive=True,
        # A quarter of a batch's CPU. Our requests are made of checked values, and `Transaction` checks its arguments.
        parameter_validation=False,
    )


def _tuned_client() -> "DynamoDBClient":
    # Imported where it is used: whoever brings a client may have paid for this already, or not want it at all.
    from boto3.session import Session  # noqa: PLC0415

    # A session of our own: boto3's default one may not be used from several threads at once.
    return Session().client("dynamodb", config=client_config())


def _token(change: Change) -> str:
    """What makes a transaction sent twice one transaction: the claim that it ends, in at most 36 characters."""
    assert change.seen is not None, "a commit replaces a claim"
    assert change.seen.version is not None, "a claim has a version"
    return hashlib.sha256(f"{change.new.id}\0{change.seen.version}".encode()).hexdigest()[:36]


def _unsendable(replacement: Replacement) -> str | None:
    return unsendable(replacement.id, [*replacement.put.values(), *replacement.standing.values()])


def _chunks(wishes: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (wishes[start : start + size] for start in range(0, len(wishes), size))


def _in_chunks(
    wishes: Sequence[Wish],
    whys: Sequence[str | None],
    one: Callable[[Wish], Written],
    many: Callable[[Sequence[Wish]], list[Written]],
) -> list[Written]:
    """Answer every wish in order: those that must not be sent (`whys`) by themselves, the others 25 at a time."""
    sendable = [wish for wish, why in zip(wishes, whys, strict=True) if why is None]
    answers: list[Written] = []
    for chunk in _chunks(sendable, WRITES_A_CALL):
        answers += [one(chunk[0])] if len(chunk) == 1 else many(chunk)
    sent = iter(answers)
    return [next(sent) if why is None else NotApplied(why, retry=False) for why in whys]


def _write_one(request: Request, send: Callable[[], object]) -> Written:
    try:
        answered(send)
    except ClientError as error:
        if code_of(error) == "ConditionalCheckFailedException":
            return _conflict(error.response)
        return request_failed(error, request)
    except BotoCoreError as error:
        return request_failed(error, request)
    return Applied()


def _statement_answer(response: Mapping[str, Any], request: Request) -> Written:
    error = response.get("Error")
    if error is None:
        return Applied()
    # An INSERT never tells what is there, so the item is None; an UPDATE tells in the error or beside it.
    if error["Code"] in ("DuplicateItem", "ConditionalCheckFailed"):
        return _conflict({**response, **error})
    return written(error["Code"], request, error.get("Message", ""))


def _conflict(told: Mapping[str, Any]) -> Conflict:
    item = told.get("Item")
    return Conflict(record_in(item) if item else None)


def _cancelled(
    reasons: Sequence[Mapping[str, Any]], request: Request, actions: Sequence[Action]
) -> Written | ActionFailed:
    """What a cancelled transaction answers.

    The record's own reason goes before any other: once the claim is lost, no condition of the handler's means anything.
    """
    codes = [reason.get("Code", "None") for reason in reasons]
    if codes and codes[0] == "ConditionalCheckFailed":
        return _conflict(reasons[0])
    if codes and codes[0] == "None" and "ConditionalCheckFailed" in codes:
        return ActionFailed(codes.index("ConditionalCheckFailed") - 1)
    for number, code in enumerate(codes):
        if code != "None":
            where = f", {named(number, actions[number - 1])}" if number else ", the record itself"
            return written(code, request, where=where)
    return Unknown(explained("TransactionCanceledException", request))
