"""Expressions mean in memory what they mean in DynamoDB; the contract compares those of its commits with engines."""

from collections.abc import Mapping
from copy import deepcopy
from decimal import Decimal
from typing import Any

import pytest

from idempotent_receiver.testing.expressions import ExpressionError, holds, updated, validate

Item = dict[str, Any]

TEXTS: dict[str, object] = {"S": "text", "B": b"octets", "SS": {"text"}, "BS": {b"octets"}}
EVERY_TYPE = TEXTS | {"N": 1, "BOOL": True, "NULL": None, "L": [1], "M": {"a": 1}, "NS": {1}}


DOCUMENT: Item = {"l": [1, {"n": Decimal("2.50")}], "s": {1, 2}}
TRUE, FALSE, T = "attribute_exists(t)", "attribute_exists(f)", {"t": 1}


def is_true(condition: str, item: Item | None, names: Mapping[str, str] | None = None, **values: object) -> bool:
    """Whether a condition holds, with `a=1` for `:a`."""
    substitutes = names or {}, {f":{name}": value for name, value in values.items()}
    validate(condition, None, *substitutes)
    return holds(condition, item, *substitutes)


def after(expression: str, item: Item, names: Mapping[str, str] | None = None, **values: object) -> Item:
    """The item after an update, with `a=1` for `:a`."""
    substitutes = names or {}, {f":{name}": value for name, value in values.items()}
    validate(None, expression, *substitutes)
    return updated(expression, item, *substitutes)


# Comparisons


@pytest.mark.parametrize(("small", "large"), [(1, Decimal("1.5")), ("a", "b"), (b"a", b"ab"), ("\uffff", "\U00010000")])
def test_each_comparator_orders_values_within_their_type(small: object, large: object) -> None:
    """Numbers, strings (by their UTF-8 octets) and binaries; with the smaller value first, an equal one, the larger."""
    orders = {"=": "010", "<>": "101", "<": "100", "<=": "110", ">": "001", ">=": "011"}
    pairs = ((small, large), (small, small), (large, small))
    for comparator, told in orders.items():
        found = [is_true(f"a {comparator} :v", {"a": left}, v=right) for left, right in pairs]
        assert found == [each == "1" for each in told], comparator


@pytest.mark.parametrize("left", EVERY_TYPE)
@pytest.mark.parametrize("right", EVERY_TYPE)
def test_equality_is_within_a_type(left: str, right: str) -> None:
    """A value equals one of its own type only: above all, a bool is not a number."""
    assert is_true("a = :v", {"a": EVERY_TYPE[left]}, v=EVERY_TYPE[right]) is (left == right)
    assert is_true("a <> :v", {"a": EVERY_TYPE[left]}, v=EVERY_TYPE[right]) is (left != right)


@pytest.mark.parametrize("item", [None, {}, {"other": 1}])
def test_absent_operands(item: Item | None) -> None:
    """An absent attribute is not equal to anything, so only `<>` is true of it, even of two absent ones."""
    for comparator in ("=", "<", "<=", ">", ">="):
        assert not is_true(f"a {comparator} :v OR :v {comparator} a OR a {comparator} b", item, v=1)
    assert is_true("a <> :v AND a <> b", item, v=1)
    assert not is_true("a BETWEEN :low AND :high OR :low BETWEEN a AND b OR a IN (:low, b)", item, low=1, high=2)
    assert not is_true("a = :null", item, null=None)


def test_ordering_types() -> None:
    """Two types have no order: the comparison is false both ways."""
    for value in (True, None, [1], {"a": 1}, {1}, "1", b"1"):
        assert not is_true("a < :v OR a > :v OR a <= :v OR a >= :v", {"a": value}, v=1)


# Functions


@pytest.mark.parametrize("descriptor", EVERY_TYPE)
def test_attribute_type(descriptor: str) -> None:
    """attribute_type tells all ten types apart, and is false of an absent attribute."""
    for name, value in EVERY_TYPE.items():
        assert is_true("attribute_type(a, :t)", {"a": value}, t=descriptor) is (name == descriptor)
    assert not is_true("attribute_type(a, :t)", None, t=descriptor)


def test_existence() -> None:
    """An attribute exists if its path leads somewhere, were it to NULL."""
    item = {"a": {"b": [None]}}
    for path, expected in (("a", True), ("a.b[0]", True), ("a.b[1]", False), ("a[0]", False), ("a.b.c", False)):
        assert is_true(f"attribute_exists({path})", item) is expected
        assert is_true(f"attribute_not_exists({path})", item) is not expected
    assert is_true("attribute_not_exists(a)", None)


def test_contains() -> None:
    """`contains` finds a substring in a string or binary, and an element in a list or set."""
    item: Item = {"s": "abc", "b": b"abc", "l": [1, [2], None], "ns": {1, 2}, "ss": {"abc"}, "m": {"abc": 1}}
    for path, value in (("s", "bc"), ("b", b"bc"), ("l", 1), ("l", [2]), ("l", None), ("ns", 2), ("ss", "abc")):
        assert is_true(f"contains({path}, :v)", item, v=value)
    for path, value in (("s", "x"), ("s", b"a"), ("l", True), ("ns", "1"), ("ss", "ab"), ("m", "abc"), ("x", "x")):
        assert not is_true(f"contains({path}, :v)", item, v=value)


def test_size() -> None:
    """Size counts characters, octets or elements, and is a number; what has no size compares as if absent."""
    for value in ("abc", b"abc", [1, 2, 3], {1, 2, 3}, {"a": 1, "b": 2, "c": 3}):
        assert is_true("size(a) = :n AND size(a) BETWEEN :n AND :n", {"a": value}, n=3)
    for item in ({}, {"a": 3}, {"a": True}, {"a": None}):
        assert not is_true("size(a) = :n OR size(a) < :n OR size(a) >= :n", item, n=3)


# Conditions


@pytest.mark.parametrize(
    ("condition", "item", "values", "expected"),
    [
        # Documents are equal if their parts are, type by type, whatever a number's notation and a set's order.
        ("a = :v", {"a": DOCUMENT}, {"v": {"s": {Decimal(2), Decimal(1)}, "l": [1, {"n": Decimal("2.5")}]}}, True),
        ("a = :v", {"a": DOCUMENT}, {"v": {"l": [True, {"n": Decimal("2.5")}], "s": {1, 2}}}, False),
        ("a = :v", {"a": [1]}, {"v": [1, 2]}, False),
        # BETWEEN includes its bounds, and IN takes values of any type.
        *(("a BETWEEN :low AND :high", {"a": n}, {"low": 1, "high": 3}, 1 <= n <= 3) for n in range(5)),
        ("a between low and high AND b = :v", {"a": 2, "low": 1, "high": 3, "b": "x"}, {"v": "x"}, True),
        ("a IN (:x, :y, b)", {"a": [1], "b": [1]}, {"x": "1", "y": 1}, True),
        ("a IN (:x, :y)", {"a": True}, {"x": "1", "y": 1}, False),
        # begins_with takes strings and binaries, each with its own type.
        *(("begins_with(a, :v)", {"a": text}, {"v": text[:2]}, True) for text in ("abc", b"abc")),
        *(("begins_with(a, :v)", {"a": "abc"}, {"v": value}, False) for value in ("b", b"ab")),
        *(("begins_with(a, :v)", item, {"v": value}, False) for item, value in (({"a": 1}, "1"), ({}, ""))),
        # NOT binds before AND, and AND before OR; parentheses come first; keywords may be in any case.
        (f"{TRUE} OR {TRUE} AND {FALSE}", T, {}, True),
        (f"({TRUE} OR {TRUE}) AND {FALSE}", T, {}, False),
        (f"NOT {TRUE} AND {FALSE}", T, {}, False),
        (f"not ({TRUE} and {FALSE})", T, {}, True),
        (f"NOT NOT {TRUE}", T, {}, True),
        (f"NOT t < :v aNd {TRUE}", T, {"v": 1}, True),
        # A path goes through maps and lists, and a #name in it is one name, dots and all.
        ("a.#bc[0].d = e[0][0]", {"a": {"b.c": [{"d": 1}]}, "e": [[1, 2]]}, {}, True),
        ("attribute_not_exists(#abc)", {"a": {"b.c": [{"d": 1}]}}, {}, True),
    ],
)
def test_whether_a_condition_holds(condition: str, item: Item, values: Item, expected: bool) -> None:
    names = {name: told for name, told in {"#bc": "b.c", "#abc": "a.b.c"}.items() if name in condition}
    assert is_true(condition, item, names, **values) is expected


# Updates

ALL: Item = {"a": 1, "m": {"x": 1}, "l": [0, 1, 2, 3]}
SUMS = {"a": Decimal("3.1"), "b": Decimal("-2.9")}


@pytest.mark.parametrize(
    ("expression", "item", "values", "result"),
    [
        # SET puts values and copies, and leaves the rest alone.
        ("SET a = :v, b = c", {"c": 1, "d": 2}, {"v": "x"}, {"a": "x", "b": 1, "c": 1, "d": 2}),
        ("SET a.b[0].#c = :v", {"a": {"b": [{}]}}, {"v": 1}, {"a": {"b": [{"c.d": 1}]}}),
        # Every operand is that of the old item, whatever the order of clauses.
        ("REMOVE a SET b = a, c = b", {"a": 1, "b": 2}, {}, {"b": 1, "c": 2}),
        # Plus and minus are exact to 38 digits.
        ("SET a = a + :v, b = :v - a", {"a": 3}, {"v": Decimal("0.1")}, SUMS),
        ("SET a = a + :v", {"a": 10**37}, {"v": 1}, {"a": 10**37 + 1}),
        # if_not_exists is the attribute if it is there, else its second operand; it may be an operand itself.
        ("SET a = if_not_exists(a, :v), b = if_not_exists(b, :v)", {"a": None}, {"v": 1}, {"a": None, "b": 1}),
        ("SET a = if_not_exists(a, :zero) + :one", {}, {"zero": 0, "one": 1}, {"a": 1}),
        ("SET a = if_not_exists(x, if_not_exists(a, :v))", {"a": 2}, {"v": 1}, {"a": 2}),
        # list_append joins two lists, in either order.
        ("SET a = list_append(a, :v), b = list_append(:v, a)", {"a": [1]}, {"v": [2]}, {"a": [1, 2], "b": [2, 1]}),
        ("SET a = list_append(if_not_exists(a, :none), :v)", {}, {"none": [], "v": [1]}, {"a": [1]}),
        # Elements set past the end are appended, in the order of their indexes.
        ("SET a[9] = :x, a[7] = :y, a[0] = :z", {"a": [0, 1]}, {"x": 7, "y": 8, "z": 9}, {"a": [9, 1, 8, 7]}),
        # REMOVE does nothing for what is not there, and leaves empty documents.
        ("REMOVE a, m.x, l[1], l[3], l[9], z, m.y", ALL, {}, {"m": {}, "l": [0, 2]}),
        # An index means the element that had it before: removals move nothing that SET or REMOVE still looks for.
        ("REMOVE a[1] SET a[3] = :v", {"a": [0, 1, 2, 3, 4]}, {"v": "x"}, {"a": [0, 2, "x", 4]}),
        ("SET a[7] = :v REMOVE a[1], a[2]", {"a": [0, 1]}, {"v": "x"}, {"a": [0, "x"]}),
        ("REMOVE a[0], a[1].b", {"a": [0, {"b": 1}]}, {}, {"a": [{}]}),
        # ADD adds to a number or a set, and makes one that is not there.
        ("ADD n :one, s :set", {"n": 2, "s": {1}}, {"one": 1, "set": {1, 2}}, {"n": 3, "s": {1, 2}}),
        ("ADD n :one, s :set, m.n :one", {"m": {}}, {"one": 1, "set": {1}}, {"n": 1, "s": {1}, "m": {"n": 1}}),
        # DELETE takes elements from a set, and the attribute with its last element.
        ("DELETE a :v", {"a": {1, 2}}, {"v": {2, 3}}, {"a": {1}}),
        ("DELETE a :v, b :v", {"a": {1}}, {"v": {1}}, {}),
    ],
)
def test_what_an_update_makes_of_an_item(expression: str, item: Item, values: Item, result: Item) -> None:
    assert after(expression, item, {"#c": "c.d"} if "#c" in expression else {}, **values) == result


def test_arithmetic_has_38_digits_and_no_absent_operands() -> None:
    """A whole number stays an int."""
    assert type(after("SET a = a - :v", {"a": 3}, v=1)["a"]) is int
    for number, other in ((10**38, 1), (Decimal("9E+125"), Decimal("9E+125"))):
        with pytest.raises(ExpressionError, match="38 digits"):
            after("SET a = a + :v", {"a": number}, v=other)
    with pytest.raises(ExpressionError, match="does not exist"):
        after("SET a = :v, b = a", {}, v=1)


@pytest.mark.parametrize(
    ("expression", "value", "items"),
    [
        ("SET a = a + :v", 1, [{}, {"a": "1"}, {"a": True}, {"a": None}, {"a": [1]}]),
        ("SET a = list_append(a, :v)", [2], [{}, {"a": 1}, {"a": {1}}]),
        ("ADD a :v", 1, [{"a": "x"}, {"a": True}]),
        ("ADD a :v", {1}, [{"a": {"x"}}, {"a": [1]}]),
        *(("ADD a :v", value, [{}]) for value in ("x", [1])),
        ("DELETE a :v", {1}, [{"a": {"x"}}, {"a": [1]}, {"a": 1}]),
        *(("DELETE a :v", value, [{}]) for value in (1, set[object]())),
    ],
)
def test_an_operation_on_another_type_of_attribute_is_an_error(expression: str, value: Any, items: list[Item]) -> None:
    """Or on an absent one, if it needs one: arithmetic does not take it for a zero."""
    for item in items:
        with pytest.raises(ExpressionError):
            after(expression, item, v=value)


@pytest.mark.parametrize("path", ["a.b", "a[0]", "l.b", "m[0]", "l[5].b", "z.b", "z[0]"])
def test_paths_that_lead_nowhere(path: str) -> None:
    """An update creates no parent documents: a path whose parent is missing, or of another kind, is an error."""
    item: Item = {"a": 1, "l": [1], "m": {"x": 1}}
    for action, values in ((f"SET {path} = :v", {"v": 1}), (f"ADD {path} :v", {"v": 1}), (f"REMOVE {path}", {})):
        with pytest.raises(ExpressionError, match="document path"):
            after(action, item, **values)


def test_the_item_is_never_changed() -> None:
    """The new item shares nothing that can change with the old one, with the values, or with itself."""
    item: Item = {"a": [[1]], "s": {1}, "m": {"x": {"y": 1}}}
    before, values = deepcopy(item), {":v": [[2]], ":s": {2}}
    new = updated("SET b = a, c = :v, a[0][0] = if_not_exists(z, :v), m.x.y = s ADD s :s", item, {}, values)
    for changed in (new["a"], new["b"], new["c"]):
        changed[0].append("changed")
    new["m"]["x"]["z"] = 0
    assert (item, values) == (before, {":v": [[2]], ":s": {2}})
    assert new["b"] == [[1, "changed"]]


# What is refused


CONDITIONS = [
    *("", "a", "a =", "a = :v extra", "a == :v", "a = :v AND", "(a = :v", "a = :v)", "a IN ()", "a BETWEEN :v", "NOT"),
    *(":v", "size(a)", "attribute_exists(a) = :v", "attribute_exists(:v)", "attribute_exists(a, b)", "begins_with(a)"),
    *("ATTRIBUTE_EXISTS(a)", "unknown(a)", "if_not_exists(a, :v) = :v", "attribute_type(a, b)", "a[:v] = :v"),
    *("a[b] = :v", "a. = :v", "_a = :v", "a-b = :v", "a = 1", "a = 'x'", "a = :", "# = :v", "a = a", "((a = :v))"),
    *("a = :v OR ((a = :v) )", "contains(a, a)", "a[00] = :v", "a[2147483648] = :v", "begins_with(size(a), :v)"),
    *("size(size(a)) = :v", "status = :v", "a.Status = :v", f"attribute_exists(a{'.b' * 32})"),
    *(f"NOT {'NOT ' * 299}a = :v", " OR ".join(["a = :v"] * 151), "(" * 1000 + "a = :v" + ")" * 1000),
    *(f"a IN ({', '.join([':v'] * 101)})", f"a = :v OR {'a' * 4096} = :v"),
]
UPDATES = [
    *("", "a = :v", "SET", "SET a", "SET a = ", "SET a = :v,", "SET a = :v SET b = :v", "SET :v = :v"),
    *("SET a = :v + :v + :v", "SET a = if_not_exists(a, :v + :v)", "SET a = if_not_exists(:v, :v)"),
    *("SET a = if_not_exists(a)", "SET a = list_append(list_append(:v, :v), :v)", "SET a = LIST_APPEND(:v, :v)"),
    *("SET a = if_not_exists(b, b)", "SET status = :v", "SET a = size(a)", "SET a = ((:v))", "SET a = (:v + :v) + :v"),
    *("REMOVE", "REMOVE :v", "REMOVE a = :v", "ADD a b", "ADD a = :v", "DELETE a", "UPSERT a = :v"),
]


@pytest.mark.parametrize(
    ("condition", "update"), [*((each, None) for each in CONDITIONS), *((None, each) for each in UPDATES)]
)
def test_what_is_outside_the_grammar_is_refused_whatever_the_item(condition: str | None, update: str | None) -> None:
    with pytest.raises(ExpressionError):
        validate(condition, update, {}, {":v": "S"} if ":v" in (condition or update or "") else {})


@pytest.mark.parametrize(
    ("one", "other"), [("a", "a"), ("a", "a.b"), ("a[1]", "a"), ("a.b", "a.b.c.d"), ("#a", "a"), ("a.b", "a[1]")]
)
def test_overlapping_paths(one: str, other: str) -> None:
    """Two actions on one attribute, on a document and its part, or on a map and a list of one name are refused."""
    names = {"#a": "a"} if "#a" in one else {}
    for expression in (f"SET {one} = :v, {other} = :v", f"SET {other} = :v REMOVE {one}"):
        with pytest.raises(ExpressionError, match=r"overlap|conflict"):
            validate(None, expression, names, {":v": 1})


@pytest.mark.parametrize(
    ("names", "values"),
    [
        *(({}, {":v": 1}), ({"#a": "a"}, {}), ({"#a": "a"}, {":v": 1, ":w": 1})),
        *(({"#a": "a", more: "b"}, {":v": 1}) for more in ("#b", "b")),
    ],
)
def test_names_and_values_are_defined_and_used(names: Mapping[str, str], values: Mapping[str, object]) -> None:
    """A #name or :value that is not defined, or not used, is refused, even where its operand would not be looked at."""
    for expressions in (("attribute_exists(t) OR #a = :v", None), (None, "SET #a = if_not_exists(t, :v)")):
        with pytest.raises(ExpressionError, match=r"defined|unused"):
            validate(*expressions, names, values)


def test_two_expressions_of_one_request() -> None:
    """A condition and an update of one request share their names and values: used by either is used."""
    condition, update = "#balance >= :amount", "SET #balance = #balance - :amount, paid = :now"
    names, values = {"#balance": "balance"}, {":amount": 5, ":now": 1}
    validate(condition, update, names, values)
    for one, other in ((condition, None), (None, update)):
        with pytest.raises(ExpressionError, match="unused in expressions: :"):
            validate(one, other, names, {**values, ":never": 1})


@pytest.mark.parametrize(
    ("condition", "value"),
    [
        *(("a < :v", [1]), (":v >= a", True), ("a BETWEEN :v AND :one", 2), ("a BETWEEN :v AND :one", "0")),
        *(("begins_with(a, :v)", 1), ("attribute_type(a, :v)", "STRING"), ("size(:v) = :one", 1)),
    ],
)
def test_values_of_a_wrong_type(condition: str, value: object) -> None:
    """A :value that its operator cannot take is an error, not a false condition, even where nothing depends on it."""
    with pytest.raises(ExpressionError):
        is_true(f"t = :one OR {condition}", {"t": 1}, one=1, v=value)


@pytest.mark.parametrize("value", [1.5, set(), {1, "a"}, {None}, object(), (1,)])
def test_values_that_dynamodb_does_not_have(value: object) -> None:
    """A float, an empty or mixed set, or some other object is not a DynamoDB value."""
    with pytest.raises(ExpressionError, match="not a DynamoDB value"):
        after("SET a = :v", {}, v=value)
