"""One run of a handler: what it may use while it runs, and its result."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from pydantic import BaseModel, model_serializer

from idempotent_receiver import Transaction, current_claim
from idempotent_receiver.clock import Deadline
from idempotent_receiver.handler.attempt import Attempt, Raised, Returned, dropped, run, run_async, serialised
from tests.manual_clock import ManualClock


def attempt(clock: ManualClock | None = None) -> Attempt:
    return Attempt("n#key", "key", 3, Deadline.after(ManualClock() if clock is None else clock, 10_000))


def test_the_current_claim_is_known_while_a_handler_runs_and_only_then() -> None:
    """Anywhere in its code, without being passed as an argument."""
    clock = ManualClock()
    seen = []

    def handle(it: Attempt) -> None:
        clock.seconds += 4
        claim = current_claim()
        seen.append((claim.key, claim.attempt, claim.idempotency_key, claim.remaining_time_ms()))

    run(handle, attempt(clock))

    assert seen == [("key", 3, attempt().idempotency_key, 6_000)]
    with pytest.raises(LookupError, match="inside a wrapped handler"):
        current_claim()


def test_the_current_claim_is_known_in_a_coroutine_and_in_what_it_starts() -> None:
    """Each task has its own."""
    seen = []

    async def deeper() -> None:
        seen.append(current_claim().key)

    async def handle(it: Attempt) -> None:
        await asyncio.gather(deeper(), asyncio.to_thread(lambda: seen.append(current_claim().key)))

    asyncio.run(run_async(handle, attempt()))

    assert seen == ["key", "key"]


def test_time_that_is_over_counts_as_zero() -> None:
    """No handler sees a negative time."""
    clock = ManualClock()
    late = attempt(clock)
    clock.seconds += 60

    assert late.remaining_time_ms() == 0


def test_a_handler_that_returns_gives_its_result_and_its_writes() -> None:
    """As they are when it returns."""

    def handle(it: Attempt) -> dict[str, int]:
        it.transaction.delete(TableName="T", Key={"id": "1"})
        return {"receipt": 1}

    handled = run(handle, attempt())

    assert isinstance(handled, Returned)
    assert handled.data == '{"receipt":1}'
    assert [action.kind for action in handled.actions] == ["Delete"]


def test_a_handler_that_returns_nothing_has_nothing_stored() -> None:
    handled = run(lambda it: None, attempt())

    assert isinstance(handled, Returned)
    assert handled.data is None


@pytest.mark.parametrize("ending", ["returns", "raises", "has a result that uses it"])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_once_the_handler_has_ended_its_transaction_is_sealed(ending: str, asynchronous: bool) -> None:
    """A later call from a thread, a task or a global raises, because it could not be committed."""
    kept: list[Transaction] = []

    class Result(BaseModel):
        @model_serializer
        def serialise(self) -> dict[str, int]:
            delete(kept[0], "too late")
            return {}

    def handle(it: Attempt) -> object:
        kept.append(it.transaction)
        delete(it.transaction, "1")
        if ending == "raises":
            raise ValueError
        return None if ending == "returns" else Result()

    async def coroutine(it: Attempt) -> object:
        return handle(it)

    handled = finished(run_async(coroutine, attempt())) if asynchronous else run(handle, attempt())

    with pytest.raises(RuntimeError, match="the handler has already returned"):
        delete(kept[0], "2")
    assert [action.arguments["Key"] for action in kept[0].actions] == [{"id": "1"}]
    if isinstance(handled, Returned):
        assert handled.actions == kept[0].actions


def test_a_transaction_that_is_first_asked_for_when_the_handler_has_ended_is_sealed() -> None:
    """Nothing that is added to it could be committed."""
    it = attempt()

    handled = run(lambda it: None, it)

    with pytest.raises(RuntimeError, match="the handler has already returned"):
        delete(it.transaction, "1")
    assert isinstance(handled, Returned)
    assert handled.actions == ()


def delete(tx: Transaction, id: str) -> None:
    tx.delete(TableName="T", Key={"id": id})


ERRORS = [ValueError(), SystemExit(), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()]


@pytest.mark.scenario("S35", mutant="`Exception` around a handler, where `BaseException` is meant")
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("asynchronous", [False, True])
def test_whatever_is_raised_is_this_keys_failure(error: BaseException, asynchronous: bool) -> None:
    """No exception escapes, neither from a plain function nor from a coroutine."""

    def handle(it: Attempt) -> None:
        raise error

    async def coroutine(it: Attempt) -> None:
        raise error

    try:
        handled = finished(run_async(coroutine, attempt())) if asynchronous else run(handle, attempt())
    except BaseException as through:  # noqa: BLE001  # an exit that came through would end the tests, not this one
        pytest.fail(f"{through!r} came through")

    assert isinstance(handled, Raised)
    assert handled.failure.type == type(error).__name__


def finished(coroutine: Any) -> Any:
    """The result of a coroutine that awaits nothing."""
    try:
        coroutine.send(None)
    except StopIteration as stopped:
        return stopped.value
    raise AssertionError("it awaits something")


def test_a_marker_says_that_a_result_was_dropped_and_why() -> None:
    """It cannot be mistaken for a result."""
    assert json.loads(dropped("too large")) == {"idempotent-receiver": {"result": "dropped", "why": "too large"}}


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "see NaN"])
def test_a_string_that_reads_like_nan_is_a_string(text: str) -> None:
    """Only the number is invalid JSON."""
    assert json.loads(serialised({"a": text}) or "") == {"a": text}
    assert "dropped" in (serialised({"a": text, "b": float("nan")}) or "")


async def unawaited() -> None: ...
async def asynchronous_steps() -> Any:
    yield 1


def steps() -> Any:
    yield 1


@pytest.mark.parametrize("make", [unawaited, steps, asynchronous_steps, asyncio.Future], ids=lambda make: make.__name__)
def test_what_nobody_has_run_is_no_result_and_is_closed(make: Any) -> None:
    """An open coroutine would warn when it is collected."""
    loop = asyncio.new_event_loop()
    result = make(loop=loop) if make is asyncio.Future else make()
    handled = run(lambda attempt: result, attempt())
    loop.close()

    assert isinstance(handled, Raised)
    assert (handled.failure.type, "which never ran" in str(handled.error)) == ("TypeError", True)
    frames = [getattr(result, name) for name in ("cr_frame", "gi_frame") if hasattr(result, name)]
    assert frames == [None] or make is asynchronous_steps or result.cancelled()


def test_a_marker_tells_what_kept_a_result_from_being_json() -> None:
    """And nothing of its text."""

    class Secret:
        def __repr__(self) -> str:
            return "secret"

    assert serialised(Secret()) == dropped("not JSON: PydanticSerializationError")
