"""One message's way through a batch, as a table: what may happen at each stage, what stage follows, and what is done.

Whatever is not in the table cannot happen, and is refused. What is done is in `exchanges.py`, `runs.py` and
`receiver.py`; this decides nothing else and knows neither a store nor a thread.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum, auto
from typing import NamedTuple

from idempotent_receiver.errors import Failure
from idempotent_receiver.handler.attempt import AsyncHandle, Handle
from idempotent_receiver.handler.outcome import Outcome
from idempotent_receiver.protocol.exchange import Unread
from idempotent_receiver.protocol.record import Record
from idempotent_receiver.protocol.transaction import Action
from idempotent_receiver.protocol.transitions import Basis, Claim


class Work(NamedTuple):
    """One message's work. `claim` is what to claim, or why nothing can be. Works of one `group` run in order.

    `seen_before` says that a record is probably there already, so that it is read rather than inserted.
    """

    key: str
    claim: Claim | Failure
    handle: Handle | AsyncHandle
    group: str | None = None
    seen_before: bool = False


class Stage(StrEnum):
    """Where an item is on its way."""

    WAITING = auto()  # not asked about yet, or waiting for an earlier item of its key
    KEYLESS = auto()  # nothing can be claimed for it: it waits for its turn to fail
    ASKED = auto()  # the store is being asked
    HELD = auto()  # claimed, and kept until its turn in its group
    READY = auto()  # its handler may start, runs, or has run: only `Runs` knows which
    STORING = auto()  # its large result is on its way to where such results go
    COMPLETING = auto()  # its completion is being recorded, with its transaction if it has one
    FAILING = auto()  # its failure is being recorded
    RELEASING = auto()  # its claim is being released
    SENDING = auto()  # its dead letter is on its way, or turns out to have nowhere to go
    ENDED = auto()  # it has its outcome


class Event(StrEnum):
    """What may happen to an item."""

    ASKS = auto()  # its turn has come to be read or claimed
    FREE = auto()  # the peek found nothing in the way of a claim
    CLAIMED = auto()  # the key is ours
    CLAIMED_LATE = auto()  # the same, but nothing more starts, or its group is blocked
    ANSWERED = auto()  # what is there, the store's silence, or the lack of time is its outcome
    SHARES = auto()  # an earlier item with its key and payload has ended
    DIFFERS = auto()  # an earlier item with its key has ended, and its payload was another one
    TURN = auto()  # nothing of its group stands before it
    STOPPED = auto()  # it will not start: no time is left, or its group is blocked
    RETURNED = auto()  # its handler returned
    RETURNED_LARGE = auto()  # the same, with a result that does not fit its record
    RAISED = auto()  # its handler raised, or could not start
    STORED = auto()  # it is known what the record says of the large result
    NOT_COMMITTED = auto()  # its transaction was refused or not answered
    SETTLED = auto()  # the store has answered, and that is its outcome
    FAILED_FOR_GOOD = auto()  # no retry can help it
    SENT = auto()  # its dead letter is confirmed, or will not be
    TIME_OVER = auto()  # the time to answer has come


class Do(StrEnum):
    """What is done about it: the table in `receiver.py` says by whom."""

    NOTHING = auto()
    ASK = auto()
    LINE_UP = auto()
    AWAIT_TURN = auto()
    MAKE_READY = auto()
    STORE = auto()
    COMPLETE = auto()
    FAIL = auto()
    RELEASE = auto()
    SEND = auto()
    END = auto()


class Next(NamedTuple):
    """What follows."""

    stage: Stage
    do: Do


class StageTable(dict[tuple[Stage, Event], Next]):
    """What follows what. A pair that is not in it is refused: it would be a defect here."""

    def __missing__(self, pair: tuple[Stage, Event]) -> Next:
        raise AssertionError(f"{pair[1]} cannot happen to an item that is {pair[0]}")


_UNANSWERED = (Stage.ASKED, Stage.STORING, Stage.COMPLETING, Stage.FAILING, Stage.RELEASING, Stage.SENDING)
"""All that an item can be when the time is over: what had not started was stopped before, and no handler runs."""

_ROWS: dict[tuple[Stage, Event], Next] = {
    # An item begins here, with a key or without one.
    (Stage.WAITING, Event.ASKS): Next(Stage.ASKED, Do.NOTHING),
    (Stage.WAITING, Event.DIFFERS): Next(Stage.ASKED, Do.ASK),
    (Stage.WAITING, Event.SHARES): Next(Stage.ENDED, Do.END),  # as the first of its key, but Duplicate for Completed
    (Stage.WAITING, Event.STOPPED): Next(Stage.ENDED, Do.END),  # NotStarted
    (Stage.KEYLESS, Event.TURN): Next(Stage.SENDING, Do.SEND),
    (Stage.KEYLESS, Event.STOPPED): Next(Stage.ENDED, Do.END),  # NotStarted
    # The store answers a peek or a claim.
    (Stage.ASKED, Event.FREE): Next(Stage.WAITING, Do.LINE_UP),
    (Stage.ASKED, Event.CLAIMED): Next(Stage.HELD, Do.AWAIT_TURN),
    (Stage.ASKED, Event.CLAIMED_LATE): Next(Stage.RELEASING, Do.RELEASE),
    (Stage.ASKED, Event.ANSWERED): Next(
        Stage.ENDED, Do.END
    ),  # Duplicate, HeldElsewhere, Unreadable, ClaimFailed; or NotStarted, too late
    (Stage.ASKED, Event.FAILED_FOR_GOOD): Next(Stage.SENDING, Do.SEND),
    # It is claimed, and has its turn.
    (Stage.HELD, Event.TURN): Next(Stage.READY, Do.MAKE_READY),
    (Stage.HELD, Event.STOPPED): Next(Stage.RELEASING, Do.RELEASE),
    (Stage.READY, Event.STOPPED): Next(Stage.RELEASING, Do.RELEASE),
    (Stage.READY, Event.RETURNED): Next(Stage.COMPLETING, Do.COMPLETE),
    (Stage.READY, Event.RETURNED_LARGE): Next(Stage.STORING, Do.STORE),
    (Stage.READY, Event.RAISED): Next(Stage.FAILING, Do.FAIL),
    (Stage.STORING, Event.STORED): Next(Stage.COMPLETING, Do.COMPLETE),
    # The store answers a settlement: Duplicate or ClaimLost, wherever another worker has taken the key over.
    (Stage.COMPLETING, Event.SETTLED): Next(Stage.ENDED, Do.END),  # Completed, SettleFailed
    (Stage.COMPLETING, Event.CLAIMED): Next(Stage.HELD, Do.AWAIT_TURN),  # unclaimed, and once more over what is there
    (Stage.COMPLETING, Event.FAILED_FOR_GOOD): Next(Stage.SENDING, Do.SEND),  # unclaimed, and another payload is there
    (Stage.COMPLETING, Event.NOT_COMMITTED): Next(Stage.FAILING, Do.FAIL),
    (Stage.FAILING, Event.SETTLED): Next(Stage.ENDED, Do.END),  # Failed
    (Stage.FAILING, Event.FAILED_FOR_GOOD): Next(Stage.SENDING, Do.SEND),
    (Stage.RELEASING, Event.SETTLED): Next(Stage.ENDED, Do.END),  # NotStarted
    (Stage.SENDING, Event.SENT): Next(Stage.ENDED, Do.END),  # DeadLettered, Failed
    **{(stage, Event.TIME_OVER): Next(Stage.ENDED, Do.END) for stage in _UNANSWERED},
}

TABLE = StageTable(_ROWS)
"""(stage, event) → the stage that follows, and what is done."""


@dataclass(slots=True, eq=False, repr=False)
class Item:
    """One work on its way, with a `claim` unless it is keyless, the `basis` of its run, a `failure` once it has failed.

    `assumed` is what the table is taken to hold before it is asked: None for nothing, so that a first delivery is
    inserted at once; Unread for what is not known, to be read first; or the record that a peek saw.
    `followers` have the same key and wait for this one's end; `outcomes` are those of earlier works of its key, by
    their payloads' fingerprints. `data` and `actions` are what its handler returned and wants committed; `recorded`
    says that the record tells of its failure.
    """

    index: int
    work: Work
    stage: Stage
    claim: Claim = field(init=False)
    basis: Basis = field(init=False)
    failure: Failure = field(init=False)
    assumed: Record | Unread | None = None
    data: str | None = None
    actions: Sequence[Action] = ()
    recorded: bool = False
    outcome: Outcome | None = None
    followers: "deque[Item] | None" = None
    outcomes: dict[str | None, Outcome] | None = None
