"""Commits as TransactWriteItems arguments, and the checks for what DynamoDB would refuse. Nothing is sent here."""

import hashlib
import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from idempotent_receiver.dynamodb import statements
from idempotent_receiver.dynamodb.errors import ApiCall, explained
from idempotent_receiver.protocol.limits import (
    MOST_ITEM_BYTES,
    UNSTORABLE,
    excess,
    key_refusal,
    number_text,
    unsendable,
)
from idempotent_receiver.protocol.record import Change, attributes
from idempotent_receiver.protocol.store import Commit, NotApplied
from idempotent_receiver.raw_requests import RawList
from idempotent_receiver.transaction.action import Action, ActionItem, Items
from idempotent_receiver.transaction.reads import PlainItem

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef

_VALUES = ("Item", "Key", "ExpressionAttributeValues")
"""The arguments that contain values; the others are names and expressions, sent unchanged."""

_ARGUMENTS = frozenset(_VALUES) | {
    "TableName",
    "ConditionExpression",
    "UpdateExpression",
    "ExpressionAttributeNames",
    "ReturnValuesOnConditionCheckFailure",
}
"""The arguments that an action may have. DynamoDB ignores any others, such as a misspelled condition."""

_WITH_BYTES = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), default=lambda value: b64encode(value).decode()
)


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """A commit as part of a transaction, possibly with others: its actions, starting with the record's, and their JSON
    without brackets. `items` are the items that it writes or checks, as far as known. `checks` maps the index of each
    check among the actions to its item and its JSON.
    """

    commit: Commit
    actions: "list[TransactWriteItemTypeDef]"
    text: bytes
    items: frozenset[ActionItem]
    checks: Mapping[int, tuple[ActionItem, bytes]]

    @property
    def shape(self) -> object:
        """The parts that DynamoDB may refuse regardless of the items' content: kinds, tables, expressions and value
        types.
        """
        return [
            [kind, *[(name, _types(value) if name in _VALUES else value) for name, value in sorted(arguments.items())]]
            for action in cast("list[dict[str, dict[str, Any]]]", self.actions)
            for kind, arguments in action.items()
        ]


def _types(values: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str]]:
    return sorted((name, kind) for name, value in values.items() for kind in value)


def members_of(commits: Sequence[Commit], table: str) -> list[Member | NotApplied]:
    """Each commit with typed values, or the reason why no transaction can contain it. `table` holds the records."""
    items = iter(Items({table: ("id",)}).of([action for commit in commits for action in commit.actions]))
    return [_member_of(commit, list(islice(items, len(commit.actions))), table) for commit in commits]


def _member_of(commit: Commit, items: list[ActionItem], table: str) -> Member | NotApplied:
    record, reason = _record_action(commit.change, table)
    if reason is not None:
        return NotApplied(reason, retry=False)
    if unknown := [action for action in commit.actions if not action.arguments.keys() <= _ARGUMENTS]:
        call = ApiCall("TransactWriteItems", _table(unknown[0]))
        return NotApplied(explained("ParamValidationError", call), retry=False, own=True)
    try:
        actions = [record, *transact_items(commit.actions)]
        text = _encoded(actions)
    except (ArithmeticError, ValueError):
        return _refused(_unstorable(commit.actions))
    known = [(table, commit.change.new.id), *(item for item in items if item is not None)]
    checks = {
        number: (item, _encoded([actions[number]]))
        for number, (action, item) in enumerate(zip(commit.actions, items, strict=True), 1)
        if action.kind == "ConditionCheck"
    }
    member = Member(commit, actions, text, frozenset(known), checks)
    # The commit is checked again by itself, because another commit may have named a wrong key.
    clash = _clash(commit, table) if len(member.items) < len(known) else None
    # An action's JSON is at least as long as its size in DynamoDB, so short texts need no check.
    large = excess(commit.actions) if len(text) > MOST_ITEM_BYTES else None
    why = _misplaced(commit.actions, table) or large or clash
    return member if why is None else _refused(why)


def transact_items(actions: Sequence[Action]) -> "list[TransactWriteItemTypeDef]":
    """The actions with typed values. Raises ArithmeticError for a number that DynamoDB cannot store."""
    items: list[Any] = [{action.kind: _arguments(action)} for action in actions]
    return items


def attribute_value(value: Any) -> dict[str, Any]:
    """A plain value in DynamoDB's format. boto3's TypeSerializer takes five times as long, and refuses 10**40."""
    match value:
        case str():
            return {"S": value}
        case bool():
            return {"BOOL": value}
        case int() | Decimal():
            return {"N": number_text(value)}
        case None:
            return {"NULL": True}
        case bytes():
            return {"B": value}
        case dict():
            return {"M": {name: attribute_value(held) for name, held in value.items()}}
        case list():
            return {"L": [attribute_value(held) for held in value]}
    # Otherwise it is a set whose members have one type.
    members = [attribute_value(held) for held in value]
    (kind,) = members[0]
    return {f"{kind}S": [member[kind] for member in members]}


def plain_item(item: Mapping[str, Mapping[str, Any]]) -> PlainItem:
    """An item as plain values, the reverse of `attribute_value`. Numbers are Decimals."""
    return {name: _plain_value(value) for name, value in item.items()}


def _plain_value(value: Mapping[str, Any]) -> Any:
    ((kind, held),) = value.items()
    match kind:
        case "N":
            return Decimal(held)
        case "NULL":
            return None
        case "M":
            return plain_item(held)
        case "L":
            return [_plain_value(one) for one in held]
        case "NS":
            return {Decimal(one) for one in held}
        case "SS" | "BS":
            return set(held)
    return held


def token_of(members: Sequence[Member]) -> str:
    """The token by which DynamoDB recognises a repeated transaction. It is derived from the members' writes and has the
    36 characters that DynamoDB allows.
    """
    written = [member.commit.change.new for member in members]
    return hashlib.sha256(json.dumps([(record.id, record.version) for record in written]).encode()).hexdigest()[:36]


def raw(members: Sequence[Member]) -> RawList:
    """All members' actions, in order; a check that several members share appears once."""
    actions: list[TransactWriteItemTypeDef] = []
    texts: list[bytes] = []
    for member, places in zip(members, places_of(members), strict=True):
        new = [number for number, place in enumerate(places) if place >= len(actions)]
        texts += [member.text] if len(new) == len(places) else [_encoded([member.actions[number]]) for number in new]
        actions += [member.actions[number] for number in new]
    return RawList(actions, b"[" + b",".join(texts) + b"]")


def places_of(members: Sequence[Member]) -> list[list[int]]:
    """The positions of each member's actions in their request. A check that several members share appears once."""
    places: list[list[int]] = []
    shared: dict[bytes, int] = {}
    count = 0
    for member in members:
        here: list[int] = []
        for number in range(len(member.actions)):
            place = shared.setdefault(member.checks[number][1], count) if number in member.checks else count
            here.append(place)
            count += place == count
        places.append(here)
    return places


def call_of(members: Sequence[Member], table: str) -> ApiCall:
    """The API call for these members' transaction."""
    tables = {table: None} | {_table(action): None for member in members for action in member.commit.actions}
    # The first commit's write is enough: only an answer to a single commit names the missing permission.
    write = "PutItem" if members[0].commit.change.seen is None else "UpdateItem"
    permission = f"dynamodb:{write} on the records, and the permissions of the handler's own actions"
    return ApiCall("TransactWriteItems", " or ".join(tables), permission)


def _record_action(change: Change, table: str) -> "tuple[TransactWriteItemTypeDef, str | None]":
    """The action that writes the record, and the reason not to send it, if any."""
    if change.seen is None:
        item = attributes(change.new)
        (reason,) = unsendable([item.values()])
        return {"Put": statements.put_item(table, item)}, reason
    replacement = statements.replacement_of(change)
    (reason,) = unsendable([replacement.sent])
    return {"Update": statements.update_item(table, replacement)}, reason


def _refused(why: str) -> NotApplied:
    return NotApplied(f"the transaction was not sent: {why}", retry=False, own=True)


def _table(action: Action) -> str:
    return str(action.arguments["TableName"])


def _arguments(action: Action) -> dict[str, Any]:
    return {
        name: {attribute: attribute_value(held) for attribute, held in value.items()} if name in _VALUES else value
        for name, value in action.arguments.items()
    }


def _encoded(actions: "Sequence[TransactWriteItemTypeDef]") -> bytes:
    """The actions as JSON without brackets. Raises ValueError for text that has no UTF-8 form."""
    # Four times as fast as `json`, but its base64 differs from DynamoDB's. Imported here, as in `client.py`.
    from pydantic_core import to_json  # noqa: PLC0415

    text = to_json(actions, bytes_mode="base64")
    if b'"B":"' in text or b'"BS":[' in text:
        text = _WITH_BYTES.encode(actions).encode()
    return text[1:-1]


def _unstorable(actions: Sequence[Action]) -> str:
    """The error for the first action with a value that DynamoDB cannot store."""
    number, action = next((number, one) for number, one in enumerate(actions, 1) if not _storable(one))
    return f"{action.named(number)} {UNSTORABLE}"


def _storable(action: Action) -> bool:
    try:
        _encoded(transact_items([action]))
    except (ArithmeticError, ValueError):
        return False
    return True


def _misplaced(actions: Sequence[Action], table: str) -> str | None:
    """The error for the first invalid key, as far as the key attributes are known."""
    for number, action in enumerate(actions, 1):
        put = action.kind == "Put"
        key = action.arguments["Item" if put else "Key"]
        if _table(action).rpartition("/")[2] == table:
            if not isinstance(key.get("id"), str) or not (put or len(key) == 1):
                return f"{action.named(number)} is on the records' table, whose only key is the string 'id'"
        elif put:
            continue
        for name in ("id",) if put else key:
            if (why := key_refusal(name, key[name])) is not None:
                return f"{action.named(number)}: {why}"
    return None


def _clash(commit: Commit, table: str) -> str | None:
    """The error for the first action on the record itself, or on the same item as an earlier action."""
    taken: dict[ActionItem, int] = {(table, commit.change.new.id): 0}
    for number, item in enumerate(Items({table: ("id",)}).of(commit.actions), 1):
        # DynamoDB detects clashes on items that are not known here.
        earlier = number if item is None else taken.setdefault(item, number)
        if earlier != number:
            return _twice(earlier, number, commit.actions[number - 1])
    return None


def _twice(earlier: int, number: int, action: Action) -> str:
    if earlier == 0:
        return f"{action.named(number)} is on the message's own record, which the transaction already writes"
    return (
        f"actions {earlier} and {number} are on the same item in {_table(action)}; DynamoDB allows one action per item"
    )
