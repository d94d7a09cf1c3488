"""Packs under any sequence of answers: what holds whatever DynamoDB says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from idempotent_receiver import Transaction
from idempotent_receiver.dynamodb.cancellations import Cancelled
from idempotent_receiver.dynamodb.errors import Misshapen
from idempotent_receiver.dynamodb.packs import MOST_TIMES_IN_COMPANY, Packs
from idempotent_receiver.dynamodb.transactions import Member, members_of
from idempotent_receiver.protocol.record import Change, Record
from idempotent_receiver.protocol.store import ActionFailed, Applied, Commit, Conflict, NotApplied, Unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from idempotent_receiver.protocol.store import Written

CODES = ["None"] * 6 + ["ConditionalCheckFailed", "TransactionConflict", "ThrottlingError", "ValidationError"]
ANSWERS: dict[str, Written] = {
    "applied": Applied(),
    "refused": NotApplied("refused", retry=False),
    "shape": Misshapen("no such table", retry=False),
    "later": NotApplied("throttled", retry=True),
    "unknown": Unknown("lost"),
}


def made(accounts: Sequence[Sequence[int]]) -> list[Member]:
    """Commits with a write on each of these accounts."""
    commits: list[Commit] = []
    for number, own in enumerate(accounts):
        tx = Transaction()
        for account in dict.fromkeys(own):
            tx.delete(TableName="accounts", Key={"account": account})
        record = Record(id=f"key-{number}", status="COMPLETED", version="v")
        commits.append(Commit(Change(record, None), tx.actions))
    return [member for member in members_of(commits, "records") if isinstance(member, Member)]


class DynamoDB:
    """It answers as the test draws, and records what was sent and what it answered."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data
        self.exchanges: list[tuple[list[Member], Written | Cancelled]] = []

    def send(self, pack: Sequence[Member]) -> Written | Cancelled:
        """The answer to a transaction."""
        answer = self._answer(sum(len(one.actions) for one in pack))
        self.exchanges.append((list(pack), answer))
        return answer

    def _answer(self, actions: int) -> Written | Cancelled:
        kind = self._data.draw(st.sampled_from(["applied", "named", "short", "refused", "shape", "later", "unknown"]))
        if kind not in ("named", "short"):
            return ANSWERS[kind]
        count = actions if kind == "named" else self._data.draw(st.integers(0, 3))
        codes = self._data.draw(st.lists(st.sampled_from(CODES), min_size=count, max_size=count))
        return Cancelled([{"Code": code} for code in codes])

    def of(self, member: Member) -> list[tuple[list[Member], Written | Cancelled]]:
        """The exchanges that it was part of."""
        return [(pack, answer) for pack, answer in self.exchanges if member in pack]


def own_codes(pack: Sequence[Member], answer: Cancelled, member: Member) -> set[str]:
    """The codes at the places of one member; none if the reasons are not one an action."""
    if len(answer.reasons) != sum(len(one.actions) for one in pack):
        return set()
    start = sum(len(one.actions) for one in pack[: pack.index(member)])
    return {reason["Code"] for reason in answer.reasons[start : start + len(member.actions)]} - {"None"}


def waits(pack: Sequence[Member], answer: Cancelled, member: Member) -> bool:
    """Whether a cancellation says nothing for sure of a member: at most that its own conditions failed, while something
    else was in the way of others.
    """
    codes = own_codes(pack, answer, member)
    return not codes or (codes == FAILED and not all_of(answer) <= FAILED)


def all_of(answer: Cancelled) -> set[str]:
    """The codes of a whole cancellation."""
    return {reason["Code"] for reason in answer.reasons} - {"None"}


FAILED = {"ConditionalCheckFailed"}
HALVINGS = 4
"""Of fourteen commits."""

commits = st.lists(st.lists(st.integers(0, 12), max_size=3), max_size=14)


@given(commits, st.sampled_from([100, 9, 4, 1]), st.data())
def test_whatever_dynamodb_answers(accounts: list[list[int]], writes: int, data: st.DataObject) -> None:
    """Each commit gets the answer that its last request tells of it, or two others of its shape, after few requests."""
    members = made(accounts)
    dynamodb = DynamoDB(data)
    packs = Packs("records", dynamodb.send)
    packs.bound.writes = writes

    answers = packs.answers(members)

    assert answers.keys() == set(members)
    for one in members:
        *before, (pack, last) = dynamodb.of(one)
        if isinstance(answers[one], Misshapen) and len(pack) > 1:
            alone = [others[0] for others, told in dynamodb.exchanges if len(others) == 1 and told == answers[one]]
            assert sum(other.shape == one.shape for other in alone) >= 2
            assert not isinstance(last, Unknown | Applied)
            continue
        check_answer(answers[one], pack, last, one)
        assert all(isinstance(answer, Cancelled | NotApplied) for _, answer in before), "it was in doubt, or applied"
        assert all(waits(others, answer, one) for others, answer in before if isinstance(answer, Cancelled))
        assert all(len(others) > 1 for others, _ in before)
        assert len(before) <= MOST_TIMES_IN_COMPANY + HALVINGS + 1
    check_requests(members, dynamodb)


def check_answer(answer: object, pack: Sequence[Member], last: Written | Cancelled, member: Member) -> None:
    """It follows from the last request, in which the member was named, or alone, or which was answered for all."""
    if not isinstance(last, Cancelled):
        assert answer == last
        assert last not in (ANSWERS["refused"], ANSWERS["shape"]) or len(pack) == 1
        return
    codes = own_codes(pack, last, member)
    assert codes or len(pack) == 1
    match answer:
        case Conflict():
            assert codes >= FAILED
        case ActionFailed():
            assert codes == all_of(last) == FAILED
        case NotApplied(retry=True, contended=contended):
            told = all_of(last)
            assert told & {"TransactionConflict", "ThrottlingError"}
            assert not contended or told & {"TransactionConflict", *FAILED}
        case NotApplied():
            assert "ValidationError" in {reason["Code"] for reason in last.reasons}
        case _:
            assert isinstance(answer, Unknown)
            assert not codes


def check_requests(members: Sequence[Member], dynamodb: DynamoDB) -> None:
    """None has an item twice or too many actions, and nobody overtakes another on the same item."""
    for pack, _ in dynamodb.exchanges:
        everything = [item for one in pack for item in one.items]
        assert len(set(everything)) == len(everything)
        assert len(everything) <= 100
    sent = [one for pack, _ in dynamodb.exchanges for one in pack]
    last = {one: number for number, one in enumerate(sent)}
    first = {one: number for number, one in reversed(list(enumerate(sent)))}
    for number, earlier in enumerate(members):
        for later in members[number + 1 :]:
            if earlier.items & later.items:
                assert last[earlier] < first[later]
