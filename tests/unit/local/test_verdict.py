"""By records, runs and tables, it is judged how it ended for each message."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from idempotent_receiver.local.effects import ContentByTable, Reference, Step, TableContent, referred
from idempotent_receiver.local.runs import Found
from idempotent_receiver.local.verdict import (
    NOT_NAMED,
    OVERRAN,
    UNRECORDED,
    WITHOUT_PARTIAL,
    EffectVerdict,
    Ended,
    Evidence,
    WitnessLine,
    judged,
    kills,
    unexplained,
    worst,
)


def line(at_ms: int, what: str, process: int = 1, **said: Any) -> WitnessLine:
    return {"at_ms": at_ms, "what": what, "process": process, **said}


def run(at_ms: int, key: str, process: int = 1, error: str | None = None) -> list[WitnessLine]:
    """A delivery, and a run from its start to its end."""
    return [
        line(at_ms, "delivered", process, ids=[key]),
        line(at_ms + 1, "started", process, key=key, record=key, attempt=1),
        line(at_ms + 5, "ended", process, key=key, error=error),
    ]


def killed(at_ms: int, process: int = 1, *done: str) -> WitnessLine:
    place = "before responding" if done else "before recording the result"
    return line(at_ms, "killed", process, place=place, ids=list(done))


def answered(
    at_ms: int, *ids: str, process: int = 1, lost: tuple[str, ...] = (), failed: tuple[str, ...] = ()
) -> WitnessLine:
    return line(at_ms, "answered", process, ids=list(ids), lost=list(lost), failed=list(failed))


CONSUMER = line(0, "consumer", claims=True, table="records")
"""The handler is a consumer of the library, whose records can be read."""
COMPLETED = {"m": {"status": "COMPLETED"}}
INPROGRESS = {"m": {"status": "INPROGRESS"}}
FAILED = {"m": {"status": "FAILED", "error": json.dumps({"type": "ValueError"})}}


def ended(*lines: WitnessLine | list[WitnessLine], **found: Any) -> Ended:
    """What is said of the one message `m`."""
    flat = [each for one in lines for each in (one if isinstance(one, list) else [one])]
    (message,) = judged(Evidence(sent={"m": "order.json"}, lines=flat, **found))
    return message


AGAIN = [run(20, "m"), answered(30, "m")]
OTHERS = [run(20, "m", 2), answered(30, "m", process=2)]
DEAD = {"dead": frozenset({"m"})}
SAID: dict[str, tuple[list[Any], dict[str, Any], tuple[EffectVerdict, int]]] = {
    "recognised when it came again": (
        [run(1, "m"), answered(10, lost=("m",)), line(20, "delivered", ids=["m"]), answered(21, "m")],
        {"records": COMPLETED},
        (EffectVerdict.ONCE, 0),
    ),
    "run when its answer was lost": ([run(1, "m"), answered(10, lost=("m",)), *AGAIN], {}, (EffectVerdict.TWICE, 1)),
    "run when it was answered": ([run(1, "m"), answered(10, "m"), *AGAIN], {}, (EffectVerdict.TWICE, 1)),
    "run when its worker was killed afterwards": (
        [run(1, "m"), killed(10, 1, "m"), *AGAIN],
        {},
        (EffectVerdict.TWICE, 1),
    ),
    "run when its worker was killed before": (
        [CONSUMER, run(1, "m"), killed(7), *OTHERS],
        {"records": COMPLETED},
        (EffectVerdict.ONCE, 0),
    ),
    "run when its worker was killed in its first run": (
        [CONSUMER, run(1, "m")[:2], killed(7), *OTHERS],
        {"records": COMPLETED},
        (EffectVerdict.ONCE, 0),
    ),
    "two runs at once": (
        [CONSUMER, run(1, "m"), run(3, "m", 2), answered(30, "m")],
        {"records": COMPLETED},
        (EffectVerdict.TWICE, 1),
    ),
    "run after others said it was done, and it was not": (
        [CONSUMER, answered(1, lost=("m",)), run(10, "m"), answered(20, "m")],
        {"records": COMPLETED},
        (EffectVerdict.ONCE, 0),
    ),
    "run again after it had failed, and the answer had not said so": (
        [CONSUMER, run(1, "m", error="ValueError"), answered(10, lost=("m",)), *AGAIN],
        {"records": COMPLETED},
        (EffectVerdict.ONCE, 0),
    ),
    "recorded where nobody can read it": (
        [{**CONSUMER, "table": None}, run(1, "m"), answered(10, "m")],
        {},
        (EffectVerdict.ONCE, 0),
    ),
    "failed, and nowhere": ([run(1, "m", error="ValueError")], {}, (EffectVerdict.NEVER, 0)),
    "not run, and nowhere": ([line(1, "delivered", ids=["m"])], {}, (EffectVerdict.NEVER, 0)),
    "still queued": ([run(1, "m", error="ValueError")], {"left": 1}, (EffectVerdict.UNFINISHED, 0)),
    "dead": ([run(1, "m", error="PermanentError"), answered(10, "m")], DEAD, (EffectVerdict.DEAD_LETTER, 0)),
    "dead, and done": (
        [CONSUMER, run(1, "m"), answered(10, "m")],
        {**DEAD, "records": COMPLETED},
        (EffectVerdict.ONCE, 0),
    ),
}


@pytest.mark.parametrize("name", SAID)
def test_a_message_ends_as_was_noted(name: str) -> None:
    lines, found, expected = SAID[name]
    message = ended(*lines, **found)
    assert (message.verdict, message.twice) == expected


ACKNOWLEDGED: dict[str, tuple[list[Any], dict[str, Any], tuple[EffectVerdict, str]]] = {
    "failed, without partial responses": (
        [CONSUMER, line(1, "spoiled", key="m", record="m"), answered(10, "m")],
        {"records": FAILED, "partial": False},
        (EffectVerdict.NEVER, WITHOUT_PARTIAL),
    ),
    "failed, and not named in the response": (
        [CONSUMER, run(1, "m", error="ValueError"), answered(10, "m")],
        {"records": FAILED},
        (EffectVerdict.NEVER, NOT_NAMED),
    ),
    "held by a dead worker": (
        [CONSUMER, run(1, "m"), killed(7), answered(10, "m", process=2)],
        {"records": INPROGRESS},
        (EffectVerdict.UNRECORDED, UNRECORDED),
    ),
}


@pytest.mark.parametrize("name", ACKNOWLEDGED)
def test_what_lambda_deletes_before_it_is_done_is_not_done(name: str) -> None:
    """By what AWS deletes from a queue, whatever the handler meant by its answer."""
    lines, found, expected = ACKNOWLEDGED[name]
    message = ended(*lines, **found)
    assert (message.verdict, message.why) == expected


@pytest.mark.parametrize("again", [run(13, "m", 2), run(40, "m", 2)], ids=["at once", "when it was done"])
def test_without_claims_two_runs_are_not_twice(again: list[WitnessLine]) -> None:
    """One of them commits, with the record."""
    ran = [*run(10, "m"), answered(30, "m"), *again]
    for claims, verdict in ((True, EffectVerdict.TWICE), (False, EffectVerdict.ONCE)):
        consumer = {**CONSUMER, "claims": claims}
        assert ended(consumer, ran, records=COMPLETED).verdict is verdict


def test_a_run_after_one_whose_time_was_up_is_none() -> None:
    overran = [line(1, "delivered", ids=["m"], until_ms=10), line(2, "started", key="m", record="m", attempt=1)]
    done = {"records": COMPLETED}
    for at, times in ((20, 0), (5, 1)):
        message = ended(CONSUMER, overran, run(at, "m", 2), answered(30, "m", process=2), **done)
        assert (message.verdict, message.twice) == ((EffectVerdict.ONCE, EffectVerdict.TWICE)[times], times)
    assert ended(overran, line(12, "delivered", ids=["m"], until_ms=22), left=1).verdict is EffectVerdict.UNFINISHED
    for dead, left, verdict in (
        (frozenset[str](), 1, EffectVerdict.UNFINISHED),
        (frozenset({"m"}), 0, EffectVerdict.NEVER),
    ):
        message = ended(overran, dead=dead, left=left)
        assert (message.verdict, message.why) == (verdict, f"its handler fails: {OVERRAN}")


def test_what_ran_again_with_nothing_to_see_is_told_apart() -> None:
    """Also if two workers ran it without claims, or its own first run failed. One run is one effect, seen or not."""
    nothing = referred([Step(["order.json"], {}, {})], {})
    found: dict[str, Any] = {"records": COMPLETED, "reference": nothing}
    done = [*run(20, "m", 2), answered(30, "m", process=2)]
    for lines, why in (
        ([CONSUMER, run(1, "m"), killed(7)], "its first worker was killed before recording the result"),
        ([CONSUMER, run(1, "m", error="ValueError")], "first run failed: ValueError"),
        ([{**CONSUMER, "claims": False}, run(18, "m")], "it ran more than once but took effect once"),
    ):
        message = ended(*lines, done, **found)
        assert (message.verdict, message.tables, message.why) == (EffectVerdict.UNSEEN, None, why)
    assert ended(CONSUMER, done, **found).verdict is EffectVerdict.ONCE


@pytest.mark.parametrize(("at", "times"), [(30, 1), (50, 0)])
def test_a_runs_time_is_that_of_its_own_batch(at: int, times: int) -> None:
    """Its process had earlier batches, whose time was up before."""
    batches = [line(1, "delivered", ids=["n"], until_ms=10), line(20, "delivered", ids=["m"], until_ms=40)]
    overran = line(21, "started", key="m", record="m", attempt=1)
    message = ended(CONSUMER, batches, overran, run(at, "m", 2), answered(60, "m", process=2), records=COMPLETED)
    assert message.twice == times


def test_dead_letters_alone_are_no_success() -> None:
    """As when the handler's model has changed, and the sample events have not."""
    dead, done = line(1, "delivered", ids=["d"]), [*run(1, "m"), answered(10, "m")]
    found = judged(Evidence(sent={"d": "refused.json", "m": "order.json"}, lines=[dead, *done], dead=frozenset({"d"})))
    assert [each.verdict for each in found] == [EffectVerdict.DEAD_LETTER, EffectVerdict.ONCE]

    def fine(*messages: Ended, **more: Any) -> bool:
        return Found(messages=messages, inside=True, claims=True, **more).fine

    assert (fine(*found), fine(found[1]), fine(found[0])) == (True, True, False)
    for verdict in (EffectVerdict.UNFINISHED, EffectVerdict.UNRECORDED, EffectVerdict.TWICE, EffectVerdict.NEVER):
        assert not fine(*found, replace(found[1], verdict=verdict))
    assert not fine(*found, missing=["no redrive policy"])
    assert not fine(*found, unexplained=["something"])


def test_messages_of_one_key_are_one() -> None:
    lines = [
        *(line(0, "keyed", id=id, key="order-1") for id in ("m", "n")),
        line(0, "delivered", ids=["m", "n"]),
        *run(1, "order-1"),
        answered(10, "m"),
        answered(11, "n"),
    ]
    (message,) = judged(Evidence(sent={"m": "order.json", "n": "order.json"}, lines=lines))
    assert (message.sent, message.deliveries, message.runs, message.verdict) == (2, 2, 1, EffectVerdict.ONCE)


def test_the_reason_is_the_records_own() -> None:
    error = json.dumps({"type": "PermanentError", "text": "no such customer"})
    records = {"m": {"status": "FAILED", "error": error}}
    assert ended(run(1, "m", error="PermanentError"), records=records, **DEAD).why == "no such customer"


def test_without_a_reason_in_the_record_the_last_error_is_the_reason() -> None:
    failures = [run(1, "m", error="TimeoutError: slow"), run(9, "m", error="ValueError: no such customer")]
    assert ended(*failures, **DEAD).why == "ValueError: no such customer"
    assert ended(*failures, left=1).why == "its handler fails: ValueError: no such customer"
    assert ended(**DEAD).why == "exceeded maxReceiveCount"


def test_kills_are_told_by_their_places() -> None:
    assert kills([killed(1), killed(2, 1, "m")]) == ["before recording the result", "before responding"]


def test_of_several_runs_the_first_worst_counts_and_if_all_is_well_the_last() -> None:
    once, twice, dead = (
        Ended(name=name, key="k", sent=1, deliveries=1, runs=runs, twice=0, record=None, tables=None, verdict=verdict)
        for name, runs, verdict in (
            ("a", 1, EffectVerdict.ONCE),
            ("b", 2, EffectVerdict.TWICE),
            ("c", 5, EffectVerdict.DEAD_LETTER),
        )
    )
    again = [replace(once, runs=2), replace(twice, runs=3)]
    assert worst([[dead], [once, twice], again]) == [dead, again[0], twice]
    assert worst([[twice], [replace(twice, verdict=EffectVerdict.ONCE)]]) == [twice]


# What the tables say.


def totals(**cents: int) -> ContentByTable:
    items = [{"customer": {"S": name}, "cents": {"N": f"{sum}"}} for name, sum in cents.items()]
    return {"Totals": TableContent(("customer",), items)}


SENT = {"m": "order.json", "n": "other.json", "o": "third.json"}
STEPS = [
    Step(["order.json"], totals(), totals(alice=1250)),
    Step(["other.json"], totals(alice=1250), totals(alice=2000)),
    Step(["third.json"], totals(alice=2000), totals(alice=2000, bob=300)),
]
REFERENCE = referred(STEPS, totals(alice=2000, bob=300))
RAN = [*run(1, "m"), *run(10, "n"), *run(20, "o"), answered(30, "m", "n", "o")]
ALL_COMPLETED = {id: {"status": "COMPLETED"} for id in SENT}


def by_tables(
    tables: ContentByTable,
    *lines: WitnessLine | list[WitnessLine],
    records: dict[str, Any] | None = None,
    reference: Reference = REFERENCE,
) -> tuple[dict[str, Ended], Evidence]:
    flat = [each for one in lines for each in (one if isinstance(one, list) else [one])]
    found = ALL_COMPLETED if records is None else records
    evidence = Evidence(sent=SENT, lines=flat, records=found, tables=tables, reference=reference)
    return {each.name: each for each in judged(evidence)}, evidence


def test_tables_that_hold_the_same_are_once() -> None:
    messages, evidence = by_tables(totals(alice=2000, bob=300), CONSUMER, RAN)
    assert [(each.tables, each.verdict, each.differs) for each in messages.values()] == [
        (EffectVerdict.ONCE, EffectVerdict.ONCE, ())
    ] * 3
    assert unexplained(evidence) == []


def test_the_message_that_ran_again_has_doubled_the_money() -> None:
    """Though its record says once; its neighbour, which writes to the same item, is not blamed."""
    messages, _ = by_tables(totals(alice=3250, bob=300), CONSUMER, run(0, "m", 3), killed(7, 3), RAN)
    doubled = messages["order.json"]
    assert (doubled.record, doubled.tables, doubled.verdict) == ("COMPLETED", EffectVerdict.TWICE, EffectVerdict.TWICE)
    assert doubled.differs == ("Totals customer=alice: cents is 3250, but 2000 in fault-free runs",)
    assert [messages[name].verdict for name in ("other.json", "third.json")] == [EffectVerdict.ONCE, EffectVerdict.ONCE]


@pytest.mark.parametrize(
    ("left", "record", "verdict"), [(1000, "COMPLETED", EffectVerdict.TWICE), (2000, "INPROGRESS", EffectVerdict.NEVER)]
)
def test_money_that_goes_out_is_counted_like_money_that_comes_in(
    left: int, record: str, verdict: EffectVerdict
) -> None:
    paid = referred([Step(["order.json"], totals(alice=2000), totals(alice=1500))], totals(alice=1500))
    records = {**ALL_COMPLETED, "m": {"status": record}}
    again = [*run(0, "m", 3), killed(7, 3)]
    messages, _ = by_tables(totals(alice=left), CONSUMER, again, RAN, records=records, reference=paid)
    assert messages["order.json"].tables is verdict


def test_what_appears_in_an_item_is_blamed_on_who_writes_there_and_ran_again() -> None:
    tables = totals(alice=2000, bob=300)
    noted = [{**item, "note": {"S": "x"}} for item in tables["Totals"].items[:1]]
    tables = {"Totals": TableContent(("customer",), [*noted, *tables["Totals"].items[1:]])}
    messages, evidence = by_tables(tables, CONSUMER, run(0, "n", 3), killed(7, 3), RAN)
    assert [each.tables for each in messages.values()] == [EffectVerdict.ONCE, EffectVerdict.TWICE, EffectVerdict.ONCE]
    assert unexplained(evidence) == []


def test_who_writes_something_else_to_the_item_is_not_blamed() -> None:
    """Though it ran again, and the one that writes the value did not."""
    noted = {"Totals": TableContent(("customer",), [{**totals(alice=1250)["Totals"].items[0], "note": {"S": "x"}}])}
    steps = [Step(["order.json"], totals(), totals(alice=1250)), Step(["other.json"], totals(alice=1250), noted)]
    doubled = {"Totals": TableContent(("customer",), [{**noted["Totals"].items[0], "cents": {"N": "2500"}}])}
    again = [*run(0, "n", 3), killed(7, 3)]
    messages, _ = by_tables(doubled, CONSUMER, again, RAN, reference=referred(steps, noted))
    assert [messages[name].tables for name in ("order.json", "other.json")] == [EffectVerdict.TWICE, EffectVerdict.ONCE]


def test_among_those_that_ran_again_the_amount_tells_which() -> None:
    again = [*run(0, "m", 3), killed(7, 3), *run(0, "n", 4), killed(7, 4)]
    messages, _ = by_tables(totals(alice=2750, bob=300), CONSUMER, again, RAN)
    assert [each.tables for each in messages.values()] == [EffectVerdict.ONCE, EffectVerdict.TWICE, EffectVerdict.ONCE]


def test_what_was_never_done_is_missing_in_the_tables() -> None:
    records = {**ALL_COMPLETED, "o": INPROGRESS["m"]}
    lines = [CONSUMER, *RAN[:6], answered(30, "m", "n", "o")]
    messages, _ = by_tables(totals(alice=2000), lines, records=records)
    lost = messages["third.json"]
    assert (lost.tables, lost.verdict, lost.why) == (EffectVerdict.NEVER, EffectVerdict.NEVER, NOT_NAMED)
    assert lost.differs == ("Totals customer=bob: 0 items, but 1 in fault-free runs",)


def test_an_effect_that_is_there_with_no_record_is_told_as_that() -> None:
    """Its worker was killed before it was recorded, and another acknowledged it."""
    records = {**ALL_COMPLETED, "o": INPROGRESS["m"]}
    messages, _ = by_tables(totals(alice=2000, bob=300), CONSUMER, RAN, records=records)
    found = messages["third.json"]
    assert (found.record, found.tables, found.verdict) == ("INPROGRESS", EffectVerdict.ONCE, EffectVerdict.UNRECORDED)


def test_runs_of_a_handler_without_the_library_are_judged_by_the_tables_where_they_can_be() -> None:
    again = [*run(40, "m"), answered(50, "m")]
    messages, _ = by_tables(totals(alice=2000, bob=300), RAN, again, records={})
    assert (messages["order.json"].twice, messages["order.json"].verdict) == (1, EffectVerdict.ONCE)
    nothing = referred([Step(["order.json"], totals(), totals())], totals())
    messages, _ = by_tables(totals(), RAN, again, records={}, reference=nothing)
    assert (messages["order.json"].tables, messages["order.json"].verdict) == (None, EffectVerdict.TWICE)


def test_what_no_message_does_without_faults_is_told_apart() -> None:
    tables = {**totals(alice=2000, bob=300), "Retries": TableContent(("id",), [{"id": {"S": "m"}}])}
    messages, evidence = by_tables(tables, CONSUMER, RAN)
    assert {each.verdict for each in messages.values()} == {EffectVerdict.ONCE}
    assert [str(each) for each in unexplained(evidence)] == ["Retries: 1 item, but 0 in fault-free runs"]


def test_a_dead_letter_that_has_taken_effect_again_is_no_dead_letter_alone() -> None:
    records = {**ALL_COMPLETED, "o": FAILED["m"]}
    again = [*run(20, "o", 3), killed(27, 3), *run(40, "o", 2), killed(47, 2)]
    lines = [CONSUMER, *RAN[:6], answered(15, "m", "n"), *again]
    evidence = Evidence(
        sent=SENT,
        lines=lines,
        records=records,
        dead=frozenset("o"),
        tables=totals(alice=2000, bob=600),
        reference=REFERENCE,
    )
    assert judged(evidence)[2].verdict is EffectVerdict.TWICE
