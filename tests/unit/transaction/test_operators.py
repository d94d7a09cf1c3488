"""How many operators an expression has, and that one with more than DynamoDB allows is refused when it is requested."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idempotent_receiver import Transaction
from idempotent_receiver.testing import expression_grammar as grammar
from idempotent_receiver.transaction.operators import MOST_OPERATORS, operators_in

AT: dict[str, Any] = {"TableName": "accounts", "Key": {"id": "a"}}
VALUES: dict[str, Any] = {"ExpressionAttributeValues": {":n": 1}}

CONDITIONS = {
    "OR": ("n <> :n", " OR ", 150),
    "or, without spaces": ("n<>:n", " or ", 150),
    "BETWEEN": ("n between :n and :n", " AND ", 150),
    "IN": ("n IN(:n, :n)", " and ", 150),
    "NOT": ("not n=:n", " AND ", 100),
    "parentheses": ("(n>=:n)", "\nAND\t", 150),
    "a function in a comparison": ("size (n) <> :n", " OR ", 100),
    "functions": ("attribute_exists(n)", " AND ", 150),
}
"""A condition's part, how parts are joined, and how many parts DynamoDB Local takes: one more is too many operators."""

UPDATES = {
    "sums": ("n{}=:n+:n", 300),
    "differences": ("n{} = n{} - :n", 300),
    "functions": ("n{}=if_not_exists(n{}, :n)", 300),
}


def update(part: str, count: int) -> str:
    return "SET " + ", ".join(part.replace("{}", str(number)) for number in range(count))


@pytest.mark.parametrize(("part", "joint", "most"), CONDITIONS.values(), ids=CONDITIONS)
def test_a_condition_with_more_than_300_operators_is_refused_at_the_call(part: str, joint: str, most: int) -> None:
    """By the action's name, however the operators are written."""
    tx = Transaction()
    tx.delete(TableName="lines", Key={"id": "b"})
    tx.check(**AT, **VALUES, ConditionExpression=joint.join([part] * most))
    with pytest.raises(
        ValueError, match=r"^action 3 \(ConditionCheck on accounts\): its ConditionExpression has 30[12] op"
    ):
        tx.check(**AT, **VALUES, ConditionExpression=joint.join([part] * (most + 1)))
    assert len(tx.actions) == 2


@pytest.mark.parametrize(("part", "most"), UPDATES.values(), ids=UPDATES)
def test_an_update_with_more_than_300_operators_is_refused_at_the_call(part: str, most: int) -> None:
    """An assignment is no operator."""
    Transaction().update(**AT, **VALUES, UpdateExpression=update("n{}=:n", 400))
    Transaction().update(**AT, **VALUES, UpdateExpression=update(part, most))
    with pytest.raises(ValueError, match=r"^action 1 \(Update on accounts\): its UpdateExpression has 301 operators"):
        Transaction().update(**AT, **VALUES, UpdateExpression=update(part, most + 1))


def test_what_was_read_counts_with_the_action_s_own_condition() -> None:
    tx = Transaction(lambda table, key: {"id": "a", "n": 1})
    tx.get(**AT, attributes=["n"])
    own = " or ".join(["n<>:n"] * 149)
    tx.update(**AT, **VALUES, UpdateExpression="SET m = :n", ConditionExpression=own)
    more = Transaction(lambda table, key: {"id": "a", "n": 1, "o": 1})
    more.get(**AT, attributes=["n", "o"])
    with pytest.raises(ValueError, match="more attributes than one condition can check"):
        more.update(**AT, **VALUES, UpdateExpression="SET m = :n", ConditionExpression=own)


def written(*texts: str) -> st.SearchStrategy[str]:
    """One of these, in any case."""
    return st.sampled_from(texts).flatmap(lambda text: st.sampled_from([text, text.lower(), text.title()]))


spaces = st.sampled_from([" ", "  ", "\n\t"])
names = st.sampled_from(["n", "m.n[1]", "#and", "between_", "not_in", "#in[0]"])
values = st.sampled_from([":n", ":or", ":between"])
operands = names | values | st.builds("size{}({})".format, st.sampled_from(["", " "]), names)
comparisons = st.builds("{}{}{}".format, names, st.sampled_from(["=", "<>", "<", "<=", " > ", ">="]), values)
ranges = st.builds(
    "{} {}{}{}{}{} {}".format, operands, written("BETWEEN"), spaces, values, spaces, written("AND"), values
)
lists = st.builds("{} {}({}, {})".format, operands, written("IN"), values, values)
calls = st.builds("{}({})".format, st.sampled_from(["attribute_exists", "attribute_not_exists"]), names)
conditions = st.recursive(
    comparisons | ranges | lists | calls,
    lambda inner: (
        st.builds("({} {} {})".format, inner, written("AND", "OR"), inner)
        | st.builds("{} {}".format, written("NOT"), inner)
    ),
    max_leaves=12,
)


@given(conditions)
def test_the_count_is_the_grammar_s(condition: str) -> None:
    """The grammar is compared with DynamoDB Local, and is not deployed."""
    parser = grammar._Parser(condition, ())
    parser.whole(grammar._Parser.condition)
    assert operators_in(condition) == parser._operators <= MOST_OPERATORS
