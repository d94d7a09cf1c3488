"""Packs: which commits share a transaction, and what follows from its answer.

DynamoDB applies a transaction whole or not at all, so one commit can keep others from taking effect. None may fail for
another's sake:

======================================= =============================================================================
answer to a pack                        what follows
======================================= =============================================================================
it took effect                          all are applied; if more were waiting, the next packs may be larger
its reasons name some                   those are answered, the others sent again at once
cancelled or refused, naming nobody     one is sent alone; if that is not the culprit, it is found by halves. A second
                                        culprit is not searched for: the others are sent alone
two refused for one shape, alone        so are all that have the same tables and expressions, unsent
throttled as a whole                    nothing took effect: all may be tried again later
nobody knows                            all are unknown, and none of them is in another request of this call
======================================= =============================================================================

So a commit fails for good only if it failed alone, or was named at its place, or two of its shape failed for that. A
call sends it in company at most three times, and in as many halves as there are: six of fifty.

Transactions that share an item conflict if they are under way at the same time, and a larger one shares more. So a pack
that met a conflict or was throttled quarters the `Bound` of those that follow, down to one commit each. Every fourth
that was cut short by it and took effect lets it grow by an eighth.
"""

import threading
from collections.abc import Callable, Sequence

from idempotent_receiver.dynamodb.errors import Misshapen
from idempotent_receiver.dynamodb.transactions import Cancelled, Member, answer_unnamed, answers_named
from idempotent_receiver.protocol.store import WRITES_A_COMMIT, ActionFailed, Applied, NotApplied, Written

MOST_BYTES_IN_COMPANY = 1024 * 1024
"""How long the actions of a pack may be in JSON. One commit alone may have the 4 MB that DynamoDB takes."""

MOST_TIMES_IN_COMPANY = 3

PACKS_TO_GROW = 4
SHRINKS_TO = 1 / 4
"""Each pack that conflicts is paid for and sent again, so the bound shrinks fast and grows slowly. By half, and with
each pack, contended messages cost an eighth more units, in a quarter fewer requests.
"""

CommitAnswers = dict[Member, Written | ActionFailed]
Send = Callable[[Sequence[Member]], Written | Cancelled]


class Bound:
    """How many writes a pack may have: at first as many as DynamoDB takes. Kept from call to call. Safe to use from
    several threads.
    """

    def __init__(self) -> None:
        self.writes = WRITES_A_COMMIT
        self._proofs = 0
        self._changing = threading.Lock()

    def shrink(self, writes: int) -> None:
        """Quarter `writes`, which was the bound when the pack was made: others of that time do not quarter it again."""
        with self._changing:
            self.writes = min(self.writes, max(1, int(writes * SHRINKS_TO)))
            self._proofs = 0

    def grow(self) -> None:
        """A pack was cut short and took effect: every fourth one allows an eighth more, or one."""
        with self._changing:
            self._proofs += 1
            if self._proofs % PACKS_TO_GROW == 0:
                self.writes = min(self.writes + max(1, self.writes // 8), WRITES_A_COMMIT)


class Packs:
    """Brings commits to their answers, in transactions that `send` sends for a store whose records are in `table`."""

    def __init__(self, table: str, send: Send) -> None:
        self._table = table
        self._send = send
        self.bound = Bound()

    def answers(self, members: Sequence[Member]) -> CommitAnswers:
        """The answers to the commits of one call."""
        return self._bring(list(members))

    def _bring(self, waiting: list[Member], times: int = 0) -> CommitAnswers:
        """Bring these to their answers, who have been in company so many `times`. The next pack leaves when all of the
        last one are answered, because they may share items.
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
        """Find out who of a pack has failed, as nobody was named: by halves. The halves that are not sent go last, in
        one pack, and if there is a second culprit among them, one by one.
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
        """The answer to one that is sent alone. If it was refused for its shape, another one of that shape follows. If
        that is refused as well, so are all `others` of it, unsent.
        """
        answers = self._told([member])
        if isinstance(answers[member], Misshapen):
            alike = [other for other in others if other is not member and other.shape == member.shape]
            answers |= self._told(alike[:1]) if alike else {}
            if alike and isinstance(answer := answers[alike[0]], Misshapen):
                answers |= dict.fromkeys(alike, answer)
        return answers

    def _taken(self, waiting: list[Member], writes: int) -> tuple[list[Member], list[Member], bool]:
        """The next pack, those who are left, and whether more writes would have made it larger.

        No item is twice in a pack, and nobody overtakes another on the same item.
        """
        pack: list[Member] = []
        left: list[Member] = []
        taken: set[object] = set()
        space, cut_short = MOST_BYTES_IN_COMPANY, False
        for member in waiting:
            fits = len(member.actions) <= writes
            cut_short |= not fits
            if not pack or (fits and len(member.text) <= space and taken.isdisjoint(member.items)):
                pack.append(member)
                writes, space = writes - len(member.actions), space - len(member.text)
            else:
                left.append(member)
            taken |= member.items
        return pack, left, cut_short

    def _told(self, pack: Sequence[Member]) -> CommitAnswers:
        """What the answer to a pack says of its members: of one alone, always something."""
        answer = self._send(pack)
        if isinstance(answer, Cancelled):
            told = answers_named(answer, pack, self._table)
            return told if told or len(pack) > 1 else {pack[0]: answer_unnamed(answer, pack[0], self._table)}
        if isinstance(answer, NotApplied) and not answer.retry and len(pack) > 1:
            return {}
        return dict.fromkeys(pack, answer)

    def _adapt(self, pack: Sequence[Member], told: CommitAnswers, writes: int, *, cut_short: bool) -> None:
        """Learn from what became of a pack. One commit alone cannot become fewer."""
        answers = told.values()
        if len(pack) > 1 and any(isinstance(answer, NotApplied) and answer.retry for answer in answers):
            self.bound.shrink(writes)
        elif cut_short and answers and all(isinstance(answer, Applied) for answer in answers):
            self.bound.grow()


def _without(answers: CommitAnswers, members: Sequence[Member]) -> list[Member]:
    return [member for member in members if member not in answers]
