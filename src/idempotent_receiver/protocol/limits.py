"""What DynamoDB refuses of a record or of an action, whatever the table holds: a store answers it without asking.

Sources: Amazon DynamoDB Developer Guide, "Quotas in Amazon DynamoDB" and "DynamoDB item sizes and formats"; API
reference, TransactWriteItems. What only a table can tell, such as the size of an updated item, is not here.
"""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Clamped, Context, Decimal, Inexact, Overflow, Rounded, Subnormal, Underflow

from idempotent_receiver.protocol.record import MOST_KEY_BYTES
from idempotent_receiver.protocol.transaction import Action

MOST_ITEM_BYTES = 400 * 1024
"""The most that an item may hold, names included."""

MOST_TRANSACTION_BYTES = 4 * 1024 * 1024
"""The most that the items of a transaction may hold together."""

MOST_SORT_KEY_BYTES = 1024
"""The most that a table's second key attribute may hold. The first may hold `MOST_KEY_BYTES`."""

MOST_NAME_BYTES = 65_535
"""The most that an attribute's name may hold."""

MOST_DIGITS = 38

_TOO_LONG = 10**MOST_DIGITS
_NUMBERS = Context(
    prec=MOST_DIGITS, Emin=-130, Emax=125, traps=[Clamped, Overflow, Inexact, Rounded, Subnormal, Underflow]
)
"""DynamoDB's numbers: what does not fit exactly raises an ArithmeticError."""

UNSTORABLE = (
    "holds a value that DynamoDB cannot store: a number has at most 38 digits, is below 1E+126 and, if it is not 0, at"
    " least 1E-130; a text has no lone surrogates"
)


def number_text(value: int | Decimal) -> str:
    """A number as DynamoDB takes it. Raises ArithmeticError for one that it cannot store."""
    if isinstance(value, int) and abs(value) < _TOO_LONG:
        return str(value)
    return str(_NUMBERS.create_decimal(value))


def bytes_of(value: object) -> int:
    """The least that DynamoDB counts for a plain value: for a number, a byte for two digits and one more.

    Raises ArithmeticError for a number, and UnicodeEncodeError for a text, that it cannot store.
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
    """The size of an item in plain values, names included. Raises as `bytes_of` does."""
    return sum([len(name.encode()) + bytes_of(value) for name, value in item.items()])


def too_large(item: Mapping[str, object]) -> str | None:
    """Why an item has no place in any table. Raises as `bytes_of` does."""
    if (size := item_bytes(item)) <= MOST_ITEM_BYTES:
        return None
    return f"its item has {size} bytes; DynamoDB takes {MOST_ITEM_BYTES} (400 KB): keep large values elsewhere"


def bytes_in(action: Action) -> int:
    """The size of the values that an action holds. Raises as `bytes_of` does."""
    return sum([item_bytes(action.arguments.get(name, {})) for name in ("Item", "Key", "ExpressionAttributeValues")])


def excess(actions: Sequence[Action]) -> str | None:
    """Which item, or whether all values together, are larger than DynamoDB takes. Raises as `bytes_of` does."""
    for number, action in enumerate(actions, 1):
        if (why := too_large(action.arguments.get("Item", {}))) is not None:
            return f"{action.named(number)}: {why}"
    total = sum(map(bytes_in, actions))
    return (
        f"its values have {total} bytes; DynamoDB takes 4 MB in a transaction"
        if total > MOST_TRANSACTION_BYTES
        else None
    )


def key_refusal(name: str, value: object, most: int = MOST_KEY_BYTES) -> str | None:
    """Why no item has this value in its key, under this name."""
    size = len(value.encode()) if isinstance(value, str) else len(value) if isinstance(value, bytes) else 1
    if 0 < size <= most:
        return None
    return f"its key {name!r} has {size} bytes: DynamoDB takes 1 to {most}{'; hash it' if size else ''}"


def unsendable(writes: Iterable[Iterable[str | int]]) -> list[str | None]:
    """Why each record, given as its values, the id first, must not be sent; None where it may be.

    DynamoDB would refuse its whole batch with it, or mix up keys: a lone surrogate has no UTF-8, and AWS's own engine
    takes each of them for a "?", so that two keys would be one.
    """
    reasons: list[str | None] = []
    for values in writes:
        reason, texts = None, []
        for value in values:
            if isinstance(value, str):
                texts.append(value)
            elif abs(value) >= _TOO_LONG:
                reason = f"a number of the record has more than {MOST_DIGITS} digits: DynamoDB cannot store it"
        try:
            size, *_ = [len(text.encode()) for text in texts]
        except UnicodeEncodeError:
            reason = "the record's key or one of its values holds a lone surrogate: DynamoDB cannot store such text"
        else:
            if not 0 < size <= MOST_KEY_BYTES:
                reason = f"the record's key has {size} bytes: DynamoDB takes 1 to {MOST_KEY_BYTES}; choose another key"
        reasons.append(reason)
    return reasons
