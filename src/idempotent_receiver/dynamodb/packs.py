"""Packs: which commits share a transaction, and what follows from its answer.

DynamoDB applies a transaction as a whole or not at all, so one commit can keep others from taking effect. No commit may
fail because of another:

======================================= =============================================================================
answer to a pack                        what follows
======================================= =============================================================================
applied                                 all are applied; if more were waiting, the next packs may be larger
the reasons name some commits           those are answered; the others are sent again at once
cancelled or refused, none named        one is sent alone; if it succeeds, the culprit is found by bisection. There is
                                        no search for a second culprit: the others are sent alone
two of one shape refused when alone     all others with the same tables and expressions are refused, unsent. Only what
                                        no value can change is a shape: no such table or operation, and an expression's
                                        syntax, names and placeholders
throttled as a whole                    nothing took effect: all may be retried later
unknown                                 all are unknown, and none is sent again in this call
======================================= =============================================================================

So a commit fails for good only if it failed alone, if a reason named it, or if two of its shape were refused for that
shape. A call sends a commit with others at most three times, plus once per bisection step: six for a pack of fifty.

Concurrent transactions that share an item conflict, and larger ones share more items. So a conflict or throttling
quarters the `Bound` on later packs, down to one commit each. Every fourth pack that the bound cut short and that took
effect raises the bound by an eighth.
"""

import threading
from collections.abc import Callable, Sequence

from idempotent_receiver.dynamodb.cancellations import Cancelled, answer_unnamed, answers_named
from idempotent_receiver.dynamodb.errors import Misshapen
from idempotent_receiver.dynamodb.transactions import Member
from idempotent_receiver.protocol.store import WRITES_A_COMMIT, ActionFailed, Applied, NotApplied, Written

MOST_BYTES_IN_COMPANY = 1024 * 1024
"""The maximum JSON size of a pack's actions. A single commit may use the 4 MB that DynamoDB allows."""

MOST_TIMES_IN_COMPANY = 3

PACKS_TO_GROW = 4
SHRINKS_TO = 1 / 4
"""A pack that conflicts is charged and sent again, so the bound shrinks fast and grows slowly. Halving it and growing
with every pack would cost an eighth more write units for contended messages, but need a quarter fewer requests.
"""

CommitAnswers = dict[Member, Written | ActionFailed]
Send = Callable[[Sequence[Member]], Written | Cancelled]


class Bound:
    """The maximum number of writes in a pack, initially DynamoDB's limit. Kept between calls. Thread-safe."""

    def __init__(self) -> None:
        self.writes = WRITES_A_COMMIT
        self._proofs = 0
        self._changing = threading.Lock()

    def shrink(self, writes: int) -> None:
        """Set the bound to a quarter of `writes`, its value when the pack was made, so that concurrent packs quarter it
        only once.
        """
        with self._changing:
            self.writes = min(self.writes, max(1, int(writes * SHRINKS_TO)))
            self._proofs = 0

    def grow(self) -> None:
        """Count a pack that was cut short and took effect. Every fourth raises the bound by an eighth (at least 1)."""
        with self._changing:
            self._proofs += 1
            if self._proofs % PACKS_TO_GROW == 0:
                self.writes = min(self.writes + max(1, self.writes // 8), WRITES_A_COMMIT)


class Packs:
    """Gets the answers to commits. `send` sends their transactions; `table` holds the records."""

    def __init__(self, table: str, send: Send) -> None:
        self._table = table
        self._send = send
        self.bound = Bound()

    def answers(self, members: Sequence[Member]) -> CommitAnswers:
        """The answers to one call's commits."""
        return self._bring(list(members))

    def _bring(self, waiting: list[Member], times: int = 0) -> CommitAnswers:
        """Get the answers to commits that have already shared a pack `times` times. Each pack is sent only when the
        previous one is fully answered, because packs may share items.
        """
        if times == MOST_TIMES_IN_COMPANY:
            return self._singly(waiting)
        answers: CommitAnswers = {}
        while waiting:
            writes = self.bound.writes
            pack, waiting, cut_short = self._taken(waiting, writes)
            told = self._told(pack)
            self._adapt(pack, told, writes, cut_short=cut_short)
            answers |= told or self._apart(pack)
            answers |= self._bring(_without(answers, pack), times + 1)
        return answers

    def _apart(self, pack: list[Member]) -> CommitAnswers:
        """If no commit in a pack was named, find by bisection which one failed. The unsent halves go last, in one
        pack, or one by one if that pack has a second culprit.
        """
        answers = self._alone(pack[0], pack)
        left = _without(answers, pack)
        suspects = left if isinstance(answers[pack[0]], Applied) else []
        while suspects:
            half = suspects[: (len(suspects) + 1) // 2]
            told = self._told(half) if len(half) > 1 else self._alone(half[0], left)
            answers |= told
            left = _without(answers, left)
            innocent = isinstance(told[half[0]], Applied) if len(half) == 1 else bool(told)
            suspects = suspects[len(half) :] if innocent else half if len(half) > 1 else []
        answers |= self._told(left) if left else {}
        return answers | self._singly(_without(answers, left))

    def _singly(self, waiting: list[Member]) -> CommitAnswers:
        answers: CommitAnswers = {}
        while waiting:
            answers |= self._alone(waiting[0], waiting)
            waiting = _without(answers, waiting)
        return answers

    def _alone(self, member: Member, others: Sequence[Member]) -> CommitAnswers:
        """The answer to one commit sent alone. If it is refused for its shape, another commit with that shape follows;
        if that is refused too, so are all `others` with the shape, unsent.
        """
        answers = self._told([member])
        if isinstance(answers[member], Misshapen):
            alike = [other for other in others if other is not member and other.shape == member.shape]
            answers |= self._told(alike[:1]) if alike else {}
            if alike and isinstance(answer := answers[alike[0]], Misshapen):
                answers |= dict.fromkeys(alike, answer)
        return answers

    def _taken(self, waiting: list[Member], writes: int) -> tuple[list[Member], list[Member], bool]:
        """The next pack, the remaining commits, and whether a higher bound would have made the pack larger.

        No item occurs twice in a pack, unless members share a check of that item. No commit overtakes another on the
        same item.
        """
        pack: list[Member] = []
        left: list[Member] = []
        taken: set[object] = set()
        checked: dict[object, bytes] = {}
        space, cut_short = MOST_BYTES_IN_COMPANY, False
        for member in waiting:
            shared = {item for item, check in member.checks.values() if checked.get(item) == check}
            count = len(member.actions) - len(shared)
            fits = count <= writes
            cut_short |= not fits
            if not pack or (fits and len(member.text) <= space and taken.isdisjoint(member.items - shared)):
                pack.append(member)
                writes, space = writes - count, space - len(member.text)
                checked |= dict(member.checks.values())
            else:
                left.append(member)
                for item in member.items:
                    checked.pop(item, None)
            taken |= member.items
        return pack, left, cut_short

    def _told(self, pack: Sequence[Member]) -> CommitAnswers:
        """The members' answers, as far as the pack's answer determines them. A single member always gets an answer."""
        answer = self._send(pack)
        if isinstance(answer, Cancelled):
            told = answers_named(answer, pack, self._table)
            return told if told or len(pack) > 1 else {pack[0]: answer_unnamed(answer, pack[0], self._table)}
        if isinstance(answer, NotApplied) and not answer.retry and len(pack) > 1:
            return {}
        return dict.fromkeys(pack, answer)

    def _adapt(self, pack: Sequence[Member], told: CommitAnswers, writes: int, *, cut_short: bool) -> None:
        """Adapt the bound to a pack's result. A single commit cannot be split further."""
        answers = told.values()
        if len(pack) > 1 and any(isinstance(answer, NotApplied) and answer.retry for answer in answers):
            self.bound.shrink(writes)
        elif cut_short and answers and all(isinstance(answer, Applied) for answer in answers):
            self.bound.grow()


def _without(answers: CommitAnswers, members: Sequence[Member]) -> list[Member]:
    return [member for member in members if member not in answers]
