"""The DynamoDB store: the request that each method of the store interface makes.

======== ==================================================== ====================================================
         one record                                           many
======== ==================================================== ====================================================
insert   PutItem if absent; a conflict shows the item         BatchExecuteStatement, INSERT, 25 per request
read     BatchGetItem, consistent                             the same, 100 per request
replace  UpdateItem if as expected; a conflict shows the item BatchExecuteStatement, UPDATE, 25 per request
commit   TransactWriteItems: the record's Update, or Put if   the same for several commits, 100 actions per request:
         there is none, and the actions                       see `packs.py`
get      GetItem, consistent, in a handler's table            (one at a time)
======== ==================================================== ====================================================

If an engine has no BatchExecuteStatement, like ScyllaDB's Alternator, the store learns this from the first error and
then sends one request per record. The first batch's result counts as unknown. moto accepts the operation but
does not support it, so moto is never sent a batch.

`protocol/` decides what to request, and what follows from an answer.
"""

import logging
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cache, partial
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from idempotent_receiver.dynamodb import errors, statements
from idempotent_receiver.dynamodb.cancellations import Cancelled
from idempotent_receiver.dynamodb.client import answered_by_moto, default_client, turn
from idempotent_receiver.dynamodb.codes import code_of
from idempotent_receiver.dynamodb.errors import ApiCall
from idempotent_receiver.dynamodb.packs import Packs
from idempotent_receiver.dynamodb.statements import RecordItem, Replacement, replacement_of
from idempotent_receiver.dynamodb.transactions import (
    Member,
    attribute_value,
    call_of,
    members_of,
    plain_item,
    raw,
    token_of,
)
from idempotent_receiver.options import require_client
from idempotent_receiver.protocol.limits import UNSTORABLE, unsendable
from idempotent_receiver.protocol.namespaces import checked, joined
from idempotent_receiver.protocol.record import Change, Record, attributes
from idempotent_receiver.protocol.store import (
    READS_A_CALL,
    WRITES_A_CALL,
    ActionFailed,
    Applied,
    Commit,
    NotApplied,
    Unknown,
    Written,
)
from idempotent_receiver.raw_requests import RawList, accept_raw
from idempotent_receiver.transaction.reads import PlainItem

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import BatchStatementRequestTypeDef

logger = logging.getLogger("idempotent_receiver.dynamodb")

MOST_RESENDS: Final = 4
"""Retries for keys that BatchGetItem left unprocessed: 100 items of 400 KB each need three requests."""

WriteT = TypeVar("WriteT", RecordItem, Replacement)
ResponseT = TypeVar("ResponseT")

_CONTENT_TYPES: Final = ("application/x-amz-json", "application/cbor")
"""DynamoDB's response content types: botocore's JSON and CBOR protocols."""


class DynamoDBStore:
    """A `TransactionalStore` in the DynamoDB table `table_name`, whose only key is the string `id`.

    `namespace` separates this consumer's keys from other consumers' keys in the table. Without a `client`, one is
    created on first use, with timeouts that suit a function: a request takes about 8 seconds at worst. If you pass a
    client, its configuration limits how long a request takes. Thread-safe.

    Raises ValueError for an invalid `table_name` (an ARN is invalid, because PartiQL rejects it), and for a namespace
    that is empty or contains `#`; TypeError for another service's client, or for a boto3 resource or its client.
    """

    def __init__(self, table_name: str, namespace: str | None = None, client: "DynamoDBClient | None" = None) -> None:
        if not table_name or not re.fullmatch(r"[A-Za-z0-9_.-]{1,255}", table_name):
            remedy = " (an ARN is not accepted)" if table_name else ": is a variable not set?"
            raise ValueError(f"{table_name!r} is not a DynamoDB table name{remedy}")
        self._client = cache(lambda: accept_raw(default_client() if client is None else client))
        if client is not None:
            require_client(client, "dynamodb", "client")
            self._client()
        self.table_name = table_name
        self.namespace = checked(namespace)
        self._packs = Packs(table_name, self._transact)
        self._no_batches = threading.Event()
        self._changing = threading.Lock()

    def named(self, name: str) -> Self:
        """The same table and client with another namespace, for another function: `orders` becomes `orders.{name}`."""
        other = copy(self)  # what has been learned of the engine is shared too
        other.namespace = joined(self.namespace, name)
        return other

    @property
    def table_id(self) -> str:
        """Identifies the table: the same for all stores on this table in this process."""
        return self.table_name

    @property
    def client(self) -> "DynamoDBClient":
        """The boto3 client that this store uses."""
        with self._changing:
            return self._client()

    def insert(self, records: Sequence[Record]) -> Sequence[Written]:
        """Insert each record whose id is not in the table."""
        items = [attributes(record) for record in records]
        reasons = unsendable([item.values() for item in items])
        return self._write(items, reasons, self._put, statements.insert, "dynamodb:PartiQLInsert")

    def replace(self, changes: Sequence[Change]) -> Sequence[Written]:
        """Write each change whose expected attributes still match."""
        replacements = [replacement_of(change) for change in changes]
        reasons = unsendable([one.sent for one in replacements])
        return self._write(replacements, reasons, self._update, statements.update, "dynamodb:PartiQLUpdate")

    def read(self, ids: Sequence[str]) -> Sequence[Record | Unknown | None]:
        """Read the current records with consistent reads."""
        # An id that could not be written has no record, and reading it would make the whole request fail.
        askable = [id for id in ids if unsendable([[id]]) == [None]]
        found: dict[str, Record | Unknown] = {}
        for start in range(0, len(askable), READS_A_CALL):
            found |= self._found(askable[start : start + READS_A_CALL])
        return [found.get(id) for id in ids]

    def get(self, table: str, key: PlainItem) -> PlainItem | Unknown | None:
        """Read a handler's item with one consistent request."""
        call = ApiCall("GetItem", table, "dynamodb:GetItem")
        try:
            typed = {name: attribute_value(value) for name, value in key.items()}
            response = _receive(lambda: self.client.get_item(TableName=table, Key=typed, ConsistentRead=True))
        except ArithmeticError:
            return Unknown(f"a key for table {table} {UNSTORABLE}", retry=False)
        except (ClientError, BotoCoreError) as error:
            failed = errors.request_failed(error, call)
            return Unknown(failed.why, failed.retry)
        item = response.get("Item")
        return None if item is None else plain_item(item)

    def commit(self, commits: Sequence[Commit]) -> Sequence[Written | ActionFailed]:
        """Write each commit's change and all its actions, or nothing of that commit."""
        members = members_of(commits, self.table_name)
        sendable = [member for member in members if isinstance(member, Member)]
        answers = self._packs.answers(sendable)
        return [answers[member] if isinstance(member, Member) else member for member in members]

    def _found(self, ids: Sequence[str]) -> dict[str, Record | Unknown]:
        """Consistent BatchGetItem of up to 100 ids. An id without a record has no entry; an unread id is `Unknown`."""
        call = ApiCall("BatchGetItem", self.table_name, "dynamodb:BatchGetItem")
        found: dict[str, Record | Unknown] = {}
        left: Any = {self.table_name: {"Keys": [{"id": {"S": id}} for id in ids], "ConsistentRead": True}}
        unread = Unknown(errors.explained("ThrottlingException", call))
        for _ in range(1 + MOST_RESENDS):
            try:
                response = _receive(partial(self.client.batch_get_item, RequestItems=left))
                if "Responses" not in response:
                    raise UnreadableAnswer
            except (ClientError, BotoCoreError) as error:
                failed = errors.request_failed(error, call)
                unread = Unknown(failed.why, failed.retry)
                break
            records = [statements.record_in(item) for item in response["Responses"].get(self.table_name, [])]
            found |= {record.id: record for record in records}
            left = response.get("UnprocessedKeys")
            if not left:
                return found
        return found | {key["id"]["S"]: unread for key in left[self.table_name]["Keys"]}

    def _transact(self, members: Sequence[Member]) -> Written | Cancelled:
        """TransactWriteItems with all members' actions."""
        actions, token = raw(members), token_of(members)
        try:
            _receive(lambda: self.client.transact_write_items(TransactItems=actions, ClientRequestToken=token))
        except (ClientError, BotoCoreError) as error:
            if isinstance(error, ClientError) and code_of(error) == "TransactionCanceledException":
                return Cancelled(error.response.get("CancellationReasons", []))
            return errors.request_failed(error, call_of(members, self.table_name))
        return Applied()

    def _write(
        self,
        writes: Sequence[WriteT],
        reasons: Sequence[str | None],
        one: Callable[[WriteT], Written],
        statement: "Callable[[str, WriteT], BatchStatementRequestTypeDef]",
        permission: str,
    ) -> list[Written]:
        """The answer to each write, in order. A write with a reason is refused unsent; the others go in batches of 25
        statements if the engine supports them, or else one by one.
        """
        sendable = [write for write, reason in zip(writes, reasons, strict=True) if reason is None]
        answers: list[Written] = []
        for start in range(0, len(sendable), WRITES_A_CALL):
            some = sendable[start : start + WRITES_A_CALL]
            if len(some) > 1 and not self._no_batches.is_set() and not answered_by_moto():
                answers += self._execute([statement(self.table_name, write) for write in some], permission)
            else:
                answers += _one_by_one(some, one)
        sent = iter(answers)
        return [next(sent) if reason is None else NotApplied(reason, retry=False) for reason in reasons]

    def _put(self, item: RecordItem) -> Written:
        call = ApiCall("PutItem", self.table_name, "dynamodb:PutItem")
        return _sent(call, lambda: self.client.put_item(**statements.put_item(self.table_name, item)))

    def _update(self, replacement: Replacement) -> Written:
        call = ApiCall("UpdateItem", self.table_name, "dynamodb:UpdateItem")
        return _sent(call, lambda: self.client.update_item(**statements.update_item(self.table_name, replacement)))

    def _execute(self, batch: "Sequence[BatchStatementRequestTypeDef]", permission: str) -> list[Written]:
        """Run independent statements; answers are in order."""
        call = ApiCall("BatchExecuteStatement", self.table_name, permission, partial=True)
        try:
            answer = _receive(lambda: self.client.batch_execute_statement(Statements=RawList(batch)))
            responses = answer.get("Responses", [])
            if len(responses) != len(batch):
                raise UnreadableAnswer
        except (ClientError, BotoCoreError) as error:
            if code_of(error) == errors.NO_SUCH_OPERATION:
                self._do_without_batches()
            return [errors.request_failed(error, call)] * len(batch)
        return [Applied() if response.get("Error") is None else _failed(response, call) for response in responses]

    def _do_without_batches(self) -> None:
        with self._changing:
            known = self._no_batches.is_set()
            self._no_batches.set()
        if not known:
            logger.warning(
                "table %s is on an engine without BatchExecuteStatement: from now on, each record is written in a "
                "separate request",
                self.table_name,
            )


def _one_by_one(writes: Sequence[WriteT], one: Callable[[WriteT], Written]) -> list[Written]:
    answers: list[Written] = []
    for write in writes:
        answers.append(one(write))
        if isinstance(lost := answers[-1], Unknown):
            # This write may have taken seconds. If all the others did too, the call would take far too long.
            return answers + [NotApplied(lost.why, retry=True)] * (len(writes) - len(answers))
    return answers


def _failed(response: Mapping[str, Any], call: ApiCall) -> Written:
    error = response["Error"]
    # An INSERT never shows the current item; an UPDATE shows it in the error or next to it.
    if error["Code"] in errors.CONFLICTS:
        return errors.conflict({**response, **error})
    return errors.write_failed(error["Code"], call, error.get("Message"))


class UnreadableAnswer(BotoCoreError):
    """The response did not come from DynamoDB, or is incomplete."""

    fmt = "a response could not be read"


def _receive(send: Callable[[], ResponseT]) -> ResponseT:
    """Send a request and return its response. Once the request has been sent, this raises only ClientError and
    BotoCoreError.

    If a proxy has changed a response, botocore's parsers raise AttributeError, UnicodeDecodeError and others. They
    mistake a web page with status 200 for an empty response, which would mean that a write took effect. The request may
    or may not have been applied, so these cases become `UnreadableAnswer`.
    """
    try:
        with turn():
            response = send()
    except (ClientError, BotoCoreError):
        raise
    except Exception as error:
        if any(frame.f_globals.get("__name__") == "botocore.parsers" for frame, _ in walk_tb(error.__traceback__)):
            raise UnreadableAnswer from error
        raise
    match response:  # a stubbed client's response may lack a content type
        case {"ResponseMetadata": {"HTTPHeaders": {"content-type": str(kind)}}} if not kind.startswith(_CONTENT_TYPES):
            raise UnreadableAnswer
    return response


def _sent(call: ApiCall, send: Callable[[], object]) -> Written:
    """Send a request that writes one item, and return its answer."""
    try:
        _receive(send)
    except (ClientError, BotoCoreError) as error:
        if isinstance(error, ClientError) and code_of(error) in errors.CONFLICTS:
            return errors.conflict(error.response)
        return errors.request_failed(error, call)
    return Applied()
