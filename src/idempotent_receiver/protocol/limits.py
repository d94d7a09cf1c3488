"""DynamoDB's limits on records and actions that do not depend on the table's content: a store enforces these itself.

Sources: Amazon DynamoDB Developer Guide, "Quotas in Amazon DynamoDB" and "DynamoDB item sizes and formats"; API
reference, TransactWriteItems. Limits that only a table can check, such as the size of an updated item, are not here.
"""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Clamped, Context, Decimal, Inexact, Overflow, Subnormal, Underflow

from idempotent_receiver.protocol.record import MOST_KEY_BYTES
from idempotent_receiver.transaction.action import Action

MOST_ITEM_BYTES = 400 * 1024
"""The maximum size of an item, names included."""

MOST_TRANSACTION_BYTES = 4 * 1024 * 1024
"""The maximum total size of the items in a transaction."""

MOST_SORT_KEY_BYTES = 1024
"""The maximum size of a sort key; a partition key's is `MOST_KEY_BYTES`."""

MOST_NAME_BYTES = 65_535
"""The maximum length of an attribute name."""

MOST_DIGITS = 38

_TOO_LONG = 10**MOST_DIGITS
_NUMBERS = Context(prec=MOST_DIGITS, Emin=-130, Emax=125, traps=[Clamped, Overflow, Inexact, Subnormal, Underflow])
"""DynamoDB's number format: a value that does not fit exactly raises an ArithmeticError. Zeros at a number's end are no
digits: 1E+40 has one.
"""

UNSTORABLE = (
    "holds a value that DynamoDB cannot store: a number has at most 38 digits, zeros at its ends not counted, is below"
    " 1E+126 and, if it is not 0, at least 1E-130; a string has no lone surrogates"
)


def number_text(value: int | Decimal) -> str:
    """A number as text in DynamoDB's format. Raises ArithmeticError if DynamoDB cannot store it."""
    if isinstance(value, int) and abs(value) < _TOO_LONG:
        return str(value)
    return str(_NUMBERS.create_decimal(value))


def bytes_of(value: object) -> int:
    """The minimum size that DynamoDB counts for a plain value: for a number, one byte per two digits, plus one.

    Raises ArithmeticError for a number and UnicodeEncodeError for a string that DynamoDB cannot store.
    """
    match value:
        case str():
            return len(value.encode())
        case bool() | None:
            return 1
        case int() | Decimal():
            digits = number_text(value).lstrip("-").partition("E")[0].replace(".", "").strip("0")
            return (len(digits) + 1) // 2 + 1
        case bytes():
            return len(value)
        case dict():
            return 3 + len(value) + item_bytes(value)
        case list():
            return 3 + len(value) + sum(map(bytes_of, value))
    return sum(map(bytes_of, value)) if isinstance(value, set) else 0


def item_bytes(item: Mapping[str, object]) -> int:
    """The size of an item of plain values, names included. Raises as `bytes_of` does."""
    return sum([len(name.encode()) + bytes_of(value) for name, value in item.items()])


def too_large(item: Mapping[str, object]) -> str | None:
    """Why no table can hold the item; None if one can. Raises as `bytes_of` does."""
    if (size := item_bytes(item)) <= MOST_ITEM_BYTES:
        return None
    return f"its item has {size} bytes; DynamoDB allows {MOST_ITEM_BYTES} (400 KB): store large values elsewhere"


def bytes_in(action: Action) -> int:
    """The size of the values in an action. Raises as `bytes_of` does."""
    return sum([item_bytes(action.arguments.get(name, {})) for name in ("Item", "Key", "ExpressionAttributeValues")])


def excess(actions: Sequence[Action]) -> str | None:
    """Why an item, or all values together, would exceed DynamoDB's limits, if so. Raises as `bytes_of` does."""
    for number, action in enumerate(actions, 1):
        if (why := too_large(action.arguments.get("Item", {}))) is not None:
            return f"{action.named(number)}: {why}"
    total = sum(map(bytes_in, actions))
    return (
        f"its values have {total} bytes; DynamoDB allows 4 MB in a transaction"
        if total > MOST_TRANSACTION_BYTES
        else None
    )


def key_refusal(name: str, value: object, most: int = MOST_KEY_BYTES) -> str | None:
    """Why an item cannot have `value` in its key attribute `name`; None if it can."""
    size = len(value.encode()) if isinstance(value, str) else len(value) if isinstance(value, bytes) else 1
    if 0 < size <= most:
        return None
    return f"its key {name!r} has {size} bytes: DynamoDB allows 1 to {most}{'; hash it' if size else ''}"


def unsendable(writes: Iterable[Iterable[str | int]]) -> list[str | None]:
    """For each record, given as its values with the id first: why it must not be sent, or None if it may be.

    DynamoDB would refuse the whole batch, or confuse keys: a lone surrogate has no UTF-8 form, and AWS's own engine
    turns each into "?", which could merge two keys.
    """
    reasons: list[str | None] = []
    for values in writes:
        reason, texts = None, []
        for value in values:
            if isinstance(value, str):
                texts.append(value)
            elif abs(value) >= _TOO_LONG:
                reason = f"a number in the record has more than {MOST_DIGITS} digits: DynamoDB cannot store it"
        try:
            size, *_ = [len(text.encode()) for text in texts]
        except UnicodeEncodeError:
            reason = "the record's key or one of its values holds a lone surrogate: DynamoDB cannot store such text"
        else:
            if not 0 < size <= MOST_KEY_BYTES:
                reason = f"the record's key has {size} bytes: DynamoDB allows 1 to {MOST_KEY_BYTES}; choose another key"
        reasons.append(reason)
    return reasons
