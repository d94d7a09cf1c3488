"""`make aws` leaves nothing behind without a word, and says what is wrong before it makes anything."""

from __future__ import annotations

import signal
import sys
import threading
import time
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

import boto3
import pytest
from botocore.credentials import RefreshableCredentials
from botocore.exceptions import ClientError, WaiterError

import harness.aws.__main__ as trial
from harness import program, run
from harness.aws import cost, places, soak, steps
from harness.aws.comparison import page
from harness.aws.credentials import lasting
from harness.aws.results import Results
from harness.aws.steps import Trial
from harness.cloud import ROOT
from harness.program import REFUSED, options_of, run_to_its_end
from idempotent_receiver.sqs.visibility import Backoff
from tests.manual_clock import ManualClock
from tests.unit.harness.test_reconciliation import FOUND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness.program import Options
    from harness.workload.reconciliation import Reconciliation
    from harness.workload.report import Report

NAME = "receiver-proof-1"


ACCOUNT = "123456789012"
AWS: Any = SimpleNamespace(environment={"AWS_REGION": "us-east-1"})
"""The place of that name."""
EXPIRY = "AWS_CREDENTIAL_EXPIRATION"
HOLD_AND_SENDING_SECONDS = soak.HOLD_SECONDS + 2 * soak.NUMBER / 9


def refused(code: str, why: str = "no") -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": why}}, "DescribeStacks")


@pytest.fixture
def signed_in(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], Any]:
    """The credentials that botocore finds in such an environment; the expiry is in minutes from now."""

    def find(variables: dict[str, str]) -> Any:
        for name in (EXPIRY, "AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        if EXPIRY in variables:
            ends = datetime.now(UTC) + timedelta(minutes=int(variables[EXPIRY]))
            variables = {**variables, EXPIRY: ends.isoformat()}
        for name, value in {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", **variables}.items():
            monkeypatch.setenv(name, value)
        return boto3.Session().get_credentials()

    return find


@pytest.fixture(autouse=True)
def undisturbed() -> Any:
    """The signals are the tests' again."""
    before = {each: signal.getsignal(each) for each in program.ENDING}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


def ended(perform: Callable[[Report], int], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    status = run_to_its_end(perform)
    return status, " ".join(capsys.readouterr().out.split())


def raising(error: BaseException) -> Callable[..., NoReturn]:
    def fails(*_: object) -> NoReturn:
        raise error

    return fails


@pytest.mark.parametrize(
    ("perform", "given", "told"),
    [
        (run.perform, {"N": "5"}, "N must be at least 20"),
        (trial.perform, {"MINUTES": "-1"}, "MINUTES must be a whole number of at least 0; it is '-1'"),
        (trial.perform, {"REHEARSAL": "yes"}, "REHEARSAL must be only or unset; it is 'yes'"),
        (trial.perform, {}, "You must specify a region. Set AWS_DEFAULT_REGION, and AWS_PROFILE"),
    ],
)
def test_what_is_wrong_is_told_by_its_key_before_anything_is_made(
    perform: Callable[[Report], int],
    given: dict[str, str],
    told: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "on_local_cloud", raising(AssertionError("it is deployed")))
    for name in ("AWS_DEFAULT_REGION", "AWS_PROFILE", "MINUTES", "REHEARSAL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {
        "AWS_CONFIG_FILE": "/nowhere",
        "AWS_STS_REGIONAL_ENDPOINTS": "legacy",
        **given,
    }.items():
        monkeypatch.setenv(name, value)
    status, said = ended(perform, capsys)
    assert (status, told in said) == (2, True), said


@pytest.mark.parametrize("code", sorted(REFUSED))
def test_credentials_that_have_expired_are_told_with_the_remedy(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, said = ended(raising(refused(code)), capsys)
    assert (status, "AWS_PROFILE or other credentials" in said) == (2, True)


def test_a_second_ctrl_c_is_not_said_to_have_cleared_up(capsys: pytest.CaptureFixture[str]) -> None:
    def impatient(_: Report) -> int:
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            signal.raise_signal(signal.SIGINT)
        return 0

    assert ended(impatient, capsys) == (130, "stopped during cleanup: resources that it created may remain")


@pytest.mark.parametrize("error", [WaiterError("StackDeleteComplete", "it failed", {}), refused("AccessDenied")])
def test_what_is_left_is_named_although_the_stack_could_not_be_deleted(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = Results()
    monkeypatch.setattr(places, "LISTED_SECONDS", 0.01)
    monkeypatch.setattr(places, "_delete", raising(error))
    monkeypatch.setattr(places, "left_of", lambda clients, name: iter(["table orders"]))
    with pytest.raises(KeyboardInterrupt), places._removed(None, NAME, results):  # type: ignore[arg-type]
        raise KeyboardInterrupt
    said = results.checks["removal"]
    assert said.startswith("failed: left ")
    assert f"perhaps stack {NAME}: {error}" in said
    assert f"table orders. `make aws REMOVE={NAME}` tries again" in said


def test_a_removal_that_is_cut_off_is_not_said_to_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    results = Results()
    monkeypatch.setattr(places, "_remove", raising(program.StoppedTwice()))
    with pytest.raises(KeyboardInterrupt), places._removed(None, NAME, results):  # type: ignore[arg-type]
        raise KeyboardInterrupt
    assert results.checks["removal"].startswith("failed: it did not finish")


@pytest.fixture
def agreed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A trial that is rehearsed in no time and agreed to; the folder of its report."""
    monkeypatch.setattr(trial, "_agreed", lambda report, minutes: ("us-east-1", ACCOUNT))
    monkeypatch.setattr(trial, "on_local_cloud", lambda name, results: nullcontext(None))
    monkeypatch.setattr(trial, "on_aws", lambda name, region, results: nullcontext(AWS))
    monkeypatch.setattr(steps, "take", lambda tried, report, keep: None)
    monkeypatch.setattr(trial, "FOLDER", tmp_path)
    monkeypatch.setattr(trial, "ROOT", tmp_path)
    return tmp_path


def the_report(folder: Path) -> str:
    (page,) = folder.glob("report-*.md")
    return page.read_text()


def tried_at(place: Any, soak: dict[str, str] | None = None) -> Trial:
    return Trial(results=Results(), place=place, name=NAME, soak=soak or {})


def test_what_ctrl_c_has_left_is_said(
    capsys: pytest.CaptureFixture[str], agreed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def left(name: str, region: str, results: Results) -> NoReturn:
        results.checks["removal"] = "failed: left table orders"
        raise KeyboardInterrupt

    monkeypatch.setattr(trial, "on_aws", left)
    status, said = ended(trial.perform, capsys)
    assert status == 130
    assert "removal: failed: left table orders" in said
    assert "- removal: failed: left table orders" in the_report(agreed)


def test_what_was_seen_is_in_the_report_whatever_ends_the_trial(
    capsys: pytest.CaptureFixture[str], agreed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each step too, so that even a power cut loses no more than one; and it names no account."""
    kept: list[str] = []

    def take(tried: Trial, report: Report, keep: Callable[[], None]) -> None:
        if tried.place is AWS:
            tried.results.checks["contract"] = "passed"
            tried.results.figures["soak: rounds"] = 3
            keep()
            kept.append(the_report(agreed))
            raise refused("ExpiredToken", f"arn:aws:iam::{ACCOUNT}:role/admin")

    monkeypatch.setattr(steps, "take", take)
    status, said = ended(trial.perform, capsys)
    assert (status, "AWS_PROFILE or other credentials" in said) == (2, True)
    assert "| soak: rounds | 3 |  |" in kept[0]
    for seen in ("| contract | passed | not run |", "| soak: rounds | 3 |  |", "- end: failed: ClientError An error"):
        assert seen in the_report(agreed)
    assert ACCOUNT not in the_report(agreed)


def test_a_rehearsal_that_fails_is_in_the_report_and_asks_aws_for_nothing(
    capsys: pytest.CaptureFixture[str], agreed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take(tried: Trial, report: Report, keep: Callable[[], None]) -> None:
        tried.results.checks["story"] = "failed: status 1"

    monkeypatch.setattr(steps, "take", take)
    monkeypatch.setattr(trial, "on_aws", raising(AssertionError("it is deployed")))
    status, said = ended(trial.perform, capsys)
    assert (status, "AWS was not used further" in said) == (1, True)
    assert "| story | not run | failed: status 1 |" in the_report(agreed)


def test_a_step_that_fails_keeps_no_other_from_being_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK itself raises a RuntimeError where credentials have expired."""
    expired = RuntimeError("the refreshed credentials are still expired")
    taken: list[str] = []

    def taking(name: str) -> Callable[[Trial], None]:
        return lambda _: raising(expired)() if name == "story" else taken.append(name)

    names = [*steps.STEPS]
    monkeypatch.setattr(steps, "STEPS", {name: taking(name) for name in names})
    kept: list[dict[str, str]] = []
    tried = tried_at(AWS)
    steps.take(tried, program.Report(), lambda: kept.append(dict(tried.results.checks)))
    assert taken == [name for name in names if name != "story"]
    assert tried.results.failures == {"story": f"failed: RuntimeError: {expired}"}
    assert len(kept) == len(names)


def test_without_a_stack_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = tried_at(AWS)
    monkeypatch.setattr(steps, "STEPS", {"deploy": raising(ValueError("no")), "contract": tried.results.checks.clear})
    steps.take(tried, program.Report(), lambda: None)
    assert tried.results.failures == {"deploy": "failed: ValueError: no"}


def test_a_step_that_is_stopped_has_undone_what_it_did_and_told_what_it_saw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, undone = tmp_path / "begun", tmp_path / "undone"
    script = tmp_path / "step.py"
    script.write_text(
        f"import time, pathlib, sys\ntry:\n    pathlib.Path({str(begun)!r}).touch()\n    time.sleep(60)\n"
        f"except KeyboardInterrupt:\n    time.sleep(1)\n    pathlib.Path({str(undone)!r}).touch()\n"
        "print('{\"rounds\": 3}')\nsys.exit(130)\n"
    )

    def interrupt() -> None:
        while not begun.exists():
            time.sleep(0.01)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)  # it is reading

    signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=interrupt)
    thread.start()
    results = Results()
    with pytest.raises(KeyboardInterrupt):
        steps._run(results, "soak", Path(sys.executable).name, str(script), environment={}, told=results.figures)
    thread.join()
    assert undone.exists()
    assert (results.checks, results.figures) == ({"soak": "failed: status 130"}, {"soak: rounds": 3})


def test_a_contract_of_which_nothing_ran_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def skipping(results: Results, what: str, *command: str, environment: object) -> str:
        path = command[-1].partition("=")[2]
        Path(path).write_text('<a><testcase name="t[named]"><skipped/></testcase></a>')
        return ""

    monkeypatch.setattr(steps, "_run", skipping)
    tried = tried_at(AWS)
    steps._contract(tried)
    assert tried.results.failures == {"contract": "failed: no test ran"}


def test_a_soak_waits_longer_than_the_longest_silence_of_an_outage() -> None:
    """Within one outage of a disturbance a message is received three times, and then comes back after this wait."""
    longest = Backoff().outage_seconds(3, ManualClock(fraction=0.999_999))
    assert soak.SPREAD.stall_seconds > longest + soak.SPREAD.poll_seconds
    whole_outage = sum(Backoff().outage_seconds(n, ManualClock(fraction=0.999_999)) for n in (1, 2, 3))
    assert soak.SPREAD.limit_seconds > whole_outage + HOLD_AND_SENDING_SECONDS


def test_a_round_goes_on_until_its_messages_have_met_the_disturbance(monkeypatch: pytest.MonkeyPatch) -> None:
    """AWS may take longer to disable a mapping than to deliver a workload."""
    workloads, slow = list[int](), threading.Event()

    @contextmanager
    def disturb(_: object) -> Iterator[None]:
        assert slow.wait(30)
        yield

    def run_on_stack(client: object, options: Options, *_: object) -> Reconciliation:
        workloads.append(options.seed)
        if len(workloads) > 1:
            slow.set()
        return FOUND

    monkeypatch.setattr(soak, "DISTURBANCES", {"mapping disabled": disturb})
    monkeypatch.setattr(soak, "MOST_WORKLOADS", 100_000)
    monkeypatch.setattr(soak, "run_on_stack", run_on_stack)
    soaked = soak.Soaked()
    soak._round(AWS, soaked, options_of({"STACK": NAME}), 0, program.Report())
    assert len(workloads) == len(set(workloads)) > 1, "each is another"
    assert (soaked.rounds, soaked.complaints, soaked.totals["sent"]) == (1, [], len(workloads) * len(FOUND.sent))


def test_a_round_that_was_never_disturbed_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()

    @contextmanager
    def disturb(_: object) -> Iterator[None]:
        assert over.wait(30)
        yield

    def complain(*complaints: str) -> None:
        told.extend(complaints)
        if told:
            over.set()

    monkeypatch.setattr(soak, "DISTURBANCES", {"mapping disabled": disturb})
    monkeypatch.setattr(soak, "run_on_stack", lambda *_: FOUND)
    soaked, told = soak.Soaked(), list[str]()
    monkeypatch.setattr(soaked, "complain", complain)
    soak._round(AWS, soaked, options_of({"STACK": NAME}), 0, program.Report())
    assert told == ["10 workloads finished before the disturbance began"]


@pytest.mark.parametrize(
    ("variables", "minutes", "told"),
    [
        ({}, 60, "these credentials do not expire"),
        ({"AWS_SESSION_TOKEN": "a-session"}, 60, "an unknown end. If they end in less than 60 minutes"),
        ({"AWS_SESSION_TOKEN": "a-session", EXPIRY: "90"}, 60, "these credentials end in 89 minutes"),
    ],
)
def test_how_long_credentials_last_is_told(variables: dict[str, str], minutes: int, told: str, signed_in: Any) -> None:
    assert told in lasting(signed_in(variables), minutes)


def test_credentials_that_end_before_the_trial_does_are_refused_with_the_remedy(signed_in: Any) -> None:
    credentials = signed_in({"AWS_SESSION_TOKEN": "a-session", EXPIRY: "60"})
    with pytest.raises(
        ValueError, match=r"these credentials end in 59 minutes, and this takes about 120\. Sign in for"
    ):
        lasting(credentials, 120)


def test_credentials_that_botocore_renews_may_end_before() -> None:
    ends = datetime.now(UTC) + timedelta(minutes=60, seconds=30)
    role = RefreshableCredentials("key", "secret", "token", ends, refresh_using=dict, method="iam-role")
    assert lasting(role, 120) == "these credentials end in 60 minutes, and botocore renews them"


def test_a_page_of_the_report_keeps_its_shape_whatever_an_error_says() -> None:
    found = Results(checks={"story": "failed: a\n| b"})
    assert "| story | failed: a \\| b | not run |" in page(found, Results(), {})


@pytest.mark.parametrize("name", ["", "receiver-proof-", "orders"])
def test_only_what_a_trial_has_made_is_removed(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMOVE", name)
    monkeypatch.setattr(places, "remove", raising(AssertionError("it is removed")))
    status, said = ended(trial.perform, capsys)
    assert (status, "REMOVE is the name of a trial, receiver-proof- and six digits" in said) == (2, True)


def test_the_documents_say_what_a_trial_takes() -> None:
    said = " ".join((ROOT / "docs" / "guarantees.md").read_text().split())
    assert "It takes about two hours, including an hour of soak, and a dollar" in said
    assert (cost.minutes(60), round(cost.dollars(cost.MOST_MESSAGES + cost.STORIES, 105 / 60))) == (120, 1)
    assert "on the local cloud, in about a quarter of an hour" in said
    assert cost.REHEARSAL_MINUTES == 15
