"""A message's path through a batch, as a table: the events possible at each stage, the next stage, and the action.

Any other event is refused. This module only decides, and knows neither stores nor threads; `receiver.py` assigns each
action to the module that performs it.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum, auto
from typing import NamedTuple

from idempotent_receiver.errors import Failure
from idempotent_receiver.handler.attempt import AsyncHandle, Handle
from idempotent_receiver.handler.outcome import NotSent, Outcome
from idempotent_receiver.protocol.answers import SettleResult
from idempotent_receiver.protocol.record import Record, Unread
from idempotent_receiver.protocol.store import Unknown
from idempotent_receiver.protocol.transitions import Basis, Claim, Claimed
from idempotent_receiver.transaction.action import Action

MakeClaim = Callable[[], tuple[str, Claim | Failure]]
"""Returns a message's key, and its claim or the failure that prevents it. May take time, and never raises."""


class Work(NamedTuple):
    """One message's work. `claim` is the claim to make, the failure that prevents it, or the job that makes it together
    with the key. Messages in one `group` are handled in order.

    `seen_before` means that a record probably exists, so it is read before any claim.
    """

    key: str
    claim: Claim | Failure | MakeClaim
    handle: Handle | AsyncHandle
    group: str | None = None
    seen_before: bool = False


class Stage(StrEnum):
    """An item's position on its path."""

    UNKEYED = auto()  # its key is being made, or waits for that
    WAITING = auto()  # not requested yet, or waiting for an earlier item with its key
    KEYLESS = auto()  # cannot be claimed: waits for its turn to fail
    ASKED = auto()  # it is being read, claimed or taken over
    HELD = auto()  # claimed, and waiting for its turn in its group
    READY = auto()  # its handler may start, is running or has run: only `Runs` knows which
    COMPLETING = auto()  # its completion is being recorded, with its transaction if any
    FAILING = auto()  # its failure is being recorded
    RELEASING = auto()  # its claim is being released
    UNSENT = auto()  # the messages in its record are being sent
    CALLING = auto()  # the calls in its record are being made
    STOPPING = auto()  # it is being recorded what is left of its outbox
    MARKING = auto()  # it is being recorded that its outbox is done
    SENDING = auto()  # its dead letter is being sent, or has no destination
    ENDED = auto()  # its outcome is known


class Event(StrEnum):
    """An event on an item's path."""

    KEYED = auto()  # its key is known, and no earlier item has it
    FOLLOWS = auto()  # its key is known, and it waits for an earlier item with it
    UNUSABLE = auto()  # it has no usable key
    ASKS = auto()  # it is about to be read or claimed
    FREE = auto()  # the peek found nothing that prevents a claim
    COMMITTED = auto()  # its effect took place, and its record has an outbox
    LEFT_UNSENT = auto()  # its effect took place elsewhere, and no worker is sending its outbox
    ALL_ANSWERED = auto()  # no more of its messages are sent, and it has calls to make
    CONFIRMED = auto()  # its messages are confirmed and its calls made
    UNCONFIRMED = auto()  # not all are, and this batch sends and calls no more of them
    CLAIMED = auto()  # its key is claimed
    CLAIMED_LATE = auto()  # its key is claimed, but no more items may start, or its group is blocked
    ANSWERED = auto()  # the record, the store's failure or the lack of time decides its outcome
    SHARES = auto()  # an earlier item with its key and payload has ended
    DIFFERS = auto()  # an earlier item with its key and a different payload has ended
    TURN = auto()  # nothing in its group is ahead of it
    STOPPED = auto()  # it will not start: no time is left, or its group is blocked
    RETURNED = auto()  # its handler returned
    RAISED = auto()  # its handler raised or could not start
    NOT_COMMITTED = auto()  # its transaction was refused or not answered
    STALE = auto()  # data that its handler had read has changed, and the handler may run again
    SETTLED = auto()  # the store's or SQS's answer decides its outcome
    FAILED_FOR_GOOD = auto()  # no retry can help
    SENT = auto()  # its dead letter is confirmed, or will not be
    TIME_OVER = auto()  # the batch's answer is due


class Do(StrEnum):
    """The action to take. `receiver.py` maps each action to a function."""

    NOTHING = auto()
    ASK = auto()
    LINE_UP = auto()
    TAKE_OVER = auto()
    AWAIT_TURN = auto()
    MAKE_READY = auto()
    RUN_AGAIN = auto()
    COMPLETE = auto()
    FAIL = auto()
    SEND_OUT = auto()
    CALL = auto()
    STOP = auto()
    MARK = auto()
    RELEASE = auto()
    SEND = auto()
    END = auto()


class Next(NamedTuple):
    """The next stage and action."""

    stage: Stage
    do: Do


class StageTable(dict[tuple[Stage, Event], Next]):
    """Maps (stage, event) to the next stage and action. A missing pair is a bug in this library."""

    def __missing__(self, pair: tuple[Stage, Event]) -> Next:
        raise AssertionError(f"{pair[1]} cannot happen to an item that is {pair[0]}")


_UNANSWERED = (
    Stage.ASKED, Stage.COMPLETING, Stage.UNSENT, Stage.CALLING, Stage.STOPPING, Stage.MARKING,
    Stage.FAILING, Stage.RELEASING, Stage.SENDING,
)  # fmt: skip
"""The stages possible when time is up: unstarted items have been stopped, and no handler is running. Calls that have
not ended only if the process is about to end.
"""

_ROWS: dict[tuple[Stage, Event], Next] = {
    # An item starts here, if its key must be made first.
    (Stage.UNKEYED, Event.KEYED): Next(Stage.WAITING, Do.LINE_UP),
    (Stage.UNKEYED, Event.FOLLOWS): Next(Stage.WAITING, Do.NOTHING),
    (Stage.UNKEYED, Event.UNUSABLE): Next(Stage.KEYLESS, Do.AWAIT_TURN),
    (Stage.UNKEYED, Event.STOPPED): Next(Stage.ENDED, Do.END),  # NotStarted
    # An item starts here, with or without a key.
    (Stage.WAITING, Event.ASKS): Next(Stage.ASKED, Do.NOTHING),
    (Stage.WAITING, Event.DIFFERS): Next(Stage.ASKED, Do.ASK),
    (Stage.WAITING, Event.SHARES): Next(
        Stage.ENDED, Do.END
    ),  # the earlier item's outcome, but Duplicate for Completed and Failed for DeadLettered
    (Stage.WAITING, Event.STOPPED): Next(Stage.ENDED, Do.END),  # NotStarted
    (Stage.KEYLESS, Event.TURN): Next(Stage.SENDING, Do.SEND),
    (Stage.KEYLESS, Event.STOPPED): Next(Stage.ENDED, Do.END),  # NotStarted
    # The store answers a peek or a claim.
    (Stage.ASKED, Event.FREE): Next(Stage.WAITING, Do.LINE_UP),
    (Stage.ASKED, Event.CLAIMED): Next(Stage.HELD, Do.AWAIT_TURN),
    (Stage.ASKED, Event.CLAIMED_LATE): Next(Stage.RELEASING, Do.RELEASE),
    (Stage.ASKED, Event.ANSWERED): Next(
        Stage.ENDED, Do.END
    ),  # Duplicate, HeldElsewhere, Unreadable, ClaimFailed; NotStarted or SettleFailed if too late
    (Stage.ASKED, Event.LEFT_UNSENT): Next(Stage.ASKED, Do.TAKE_OVER),
    (Stage.ASKED, Event.COMMITTED): Next(Stage.UNSENT, Do.SEND_OUT),  # by another worker, and taken over
    (Stage.ASKED, Event.FAILED_FOR_GOOD): Next(Stage.SENDING, Do.SEND),
    # The item is claimed, and its turn comes.
    (Stage.HELD, Event.TURN): Next(Stage.READY, Do.MAKE_READY),
    (Stage.HELD, Event.STOPPED): Next(Stage.RELEASING, Do.RELEASE),
    (Stage.READY, Event.STOPPED): Next(Stage.RELEASING, Do.RELEASE),
    (Stage.READY, Event.RETURNED): Next(Stage.COMPLETING, Do.COMPLETE),
    (Stage.READY, Event.RAISED): Next(Stage.FAILING, Do.FAIL),
    # Or, where the store runs the handler in its own transaction, the record that it finds there decides.
    (Stage.READY, Event.ANSWERED): Next(Stage.ENDED, Do.END),
    (Stage.READY, Event.LEFT_UNSENT): Next(Stage.ASKED, Do.TAKE_OVER),
    (Stage.READY, Event.FAILED_FOR_GOOD): Next(Stage.SENDING, Do.SEND),
    # The store answers a settlement: Duplicate or ClaimLost if another worker has taken over the key.
    (Stage.COMPLETING, Event.SETTLED): Next(Stage.ENDED, Do.END),  # Completed, SettleFailed
    (Stage.COMPLETING, Event.CLAIMED): Next(Stage.HELD, Do.AWAIT_TURN),  # unclaimed: runs again with the record found
    (Stage.COMPLETING, Event.FAILED_FOR_GOOD): Next(Stage.SENDING, Do.SEND),  # unclaimed: the record's payload differs
    (Stage.COMPLETING, Event.STALE): Next(Stage.READY, Do.RUN_AGAIN),
    (Stage.COMPLETING, Event.NOT_COMMITTED): Next(Stage.FAILING, Do.FAIL),
    (Stage.COMPLETING, Event.COMMITTED): Next(Stage.UNSENT, Do.SEND_OUT),
    # SQS answers for the messages, the calls end, and the store answers for what is recorded of that.
    (Stage.UNSENT, Event.ALL_ANSWERED): Next(Stage.CALLING, Do.CALL),
    (Stage.UNSENT, Event.CONFIRMED): Next(Stage.MARKING, Do.MARK),
    (Stage.UNSENT, Event.UNCONFIRMED): Next(Stage.STOPPING, Do.STOP),
    (Stage.CALLING, Event.CONFIRMED): Next(Stage.MARKING, Do.MARK),
    (Stage.CALLING, Event.UNCONFIRMED): Next(Stage.STOPPING, Do.STOP),
    (Stage.STOPPING, Event.SETTLED): Next(Stage.ENDED, Do.END),  # NotSent, Duplicate, HeldElsewhere
    (Stage.STOPPING, Event.FAILED_FOR_GOOD): Next(Stage.SENDING, Do.SEND),  # SQS or a call refuses what is left
    (Stage.MARKING, Event.SETTLED): Next(Stage.ENDED, Do.END),  # Completed, Duplicate, HeldElsewhere, NotSent
    (Stage.FAILING, Event.STALE): Next(Stage.READY, Do.RUN_AGAIN),
    (Stage.FAILING, Event.NOT_COMMITTED): Next(Stage.FAILING, Do.FAIL),
    (Stage.FAILING, Event.SETTLED): Next(Stage.ENDED, Do.END),  # Failed
    (Stage.FAILING, Event.FAILED_FOR_GOOD): Next(Stage.SENDING, Do.SEND),
    (Stage.RELEASING, Event.SETTLED): Next(Stage.ENDED, Do.END),  # NotStarted
    (Stage.SENDING, Event.SENT): Next(Stage.ENDED, Do.END),  # DeadLettered, Failed
    **{(stage, Event.TIME_OVER): Next(Stage.ENDED, Do.END) for stage in _UNANSWERED},
}

TABLE = StageTable(_ROWS)
"""(stage, event) → the next stage and action."""


@dataclass(slots=True, eq=False, repr=False)
class Item:
    """One message on its path. It has a `claim` unless it is unkeyed or keyless, the `basis` of its run, and a
    `failure` once it has failed.

    `assumed` is what the first request presumes: None for no record (the claim inserts one at once), Unread for
    unknown (the record is read first), or the record that was seen. `followers` have the same key and wait for this
    item to end. `outcomes` holds the outcomes of earlier items with its key, by payload fingerprint. `data` is the
    handler's result, `actions` are committed with it, `outbox` is what to send and call afterwards, and then what is
    left of that; `sending` is this worker's claim on the record that contains it. `not_sent` says why something is
    left; it is None if only what is `refused` for good is. `recorded` means that the failure is in the record. `runs`
    counts the runs that have ended. `run_seconds` and `reads` are the durations of the last run and of its reads;
    `since` is the count of writes in `Turns` when that run began. `again` means that the handler must run again,
    because data it had read has changed. `settled` is the answer to the settlement that the run's own store has made.
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
    outbox: str | None = None
    sending: Claimed | None = None
    not_sent: NotSent | None = None
    refused: bool = False
    recorded: bool = False
    runs: int = 0
    run_seconds: float = 0.0
    reads: Sequence[float] = ()
    since: int = 0
    again: bool = False
    settled: SettleResult | Unknown | None = None
    outcome: Outcome | None = None
    followers: "deque[Item] | None" = None
    outcomes: dict[str | None, Outcome] | None = None
