"""The page of dead letters shows what the commands know, has commands that run, and never obeys what it shows."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver.errors import Failure
from idempotent_receiver.operations.cli import dlq_page
from idempotent_receiver.operations.cli.terminal import Exit
from idempotent_receiver.operations.dead_letters.following import Fate, became
from idempotent_receiver.operations.dead_letters.history import ActOutcome, Verb
from idempotent_receiver.operations.page import html_of
from idempotent_receiver.protocol.record import DEFAULT_RETENTION_SECONDS, Record
from tests.browser import seen
from tests.unit.operations.cli.page_drivers import DRIVER, INTRUDER, PACE
from tests.unit.operations.cli.stack import CLOSED, DEAD, DONE, FLAKY, SECRET
from tests.unit.operations.dead_letters.acts import act

if TYPE_CHECKING:
    from tests.unit.operations.cli.history import Kept
    from tests.unit.operations.cli.stack import Receiver, Stack

HOSTILE = (
    '</script><script>document.title = "taken"</script><img src=x onerror="document.title = \'taken\'">'
    '<!-- "the data" <b>\u2028\u202egnp.exe\u2066 \\u003c \x1b[2J &lt;'
)
SHOWN = HOSTILE.translate({ord(sign): f"\\u{ord(sign):04x}" for sign in "\u2028\u202e\u2066\x1b"})
"""How a person reads it: what could hide or reorder the text around it has its number."""


def data_of(page: str) -> Any:
    return json.loads(page.partition('id="data">')[2].partition("</script>")[0])


def reported(receiver: Receiver, options: str = "") -> Any:
    """What the page holds."""
    Path("page.html").unlink(missing_ok=True)
    ran = receiver.on(f"dlq list --out page.html {options}")
    assert ran.code == Exit.OK, ran.err
    return data_of(Path("page.html").read_text("utf-8"))


def test_it_looks_at_what_the_filters_mean_and_releases_all(receiver: Receiver, stack: Stack) -> None:
    assert [each["key"] for each in reported(receiver, f"--key {FLAKY}")["letters"]] == [FLAKY]
    assert stack.keys_in(stack.dead) == DEAD


def test_a_page_may_be_empty_or_a_sample(receiver: Receiver, stack: Stack) -> None:
    ran = receiver.on("dlq list --out empty.html --key nosuch --json")
    assert (ran.code, ran.json["count"], ran.json["about"]) == (Exit.LEFT, 0, 4)
    assert data_of(Path("empty.html").read_text())["letters"] == []
    for number in range(20):
        stack.bury(f"more-{number}")
    data = reported(receiver, "--limit 10")
    assert (len(data["letters"]), data["about"], data["sample"]) == (10, 24, True)


def test_what_was_done_in_the_last_14_days_is_told_with_what_became_of_it(
    receiver: Receiver, stack: Stack, kept: Kept
) -> None:
    day = 24 * 60 * 60
    queue = {"queue": stack.arn, "dead_letter_queue": stack.dead_arn}
    kept.done(15 * day, "too-old", **queue)
    kept.done(30, "elsewhere", queue=f"{stack.arn}-other")  # of another consumer with the same history
    kept.done(40, DONE, **queue)
    kept.done(30, "never-seen", **queue)
    kept.done(20, FLAKY, **queue)
    kept.done(10, CLOSED, verb=Verb.DELETED, **queue)
    kept.begin(5, "in-doubt", **queue)
    acts = reported(receiver)["acts"]
    assert [(each["key"], each["became"]) for each in acts] == [
        ("in-doubt", "waiting"),
        (CLOSED, None),
        (FLAKY, "dead again"),
        ("never-seen", "waiting"),
        (DONE, "dead again"),
    ]
    assert [each["key"] for each in acts if each["may_have_happened"]] == ["in-doubt"]


def test_a_move_that_the_key_was_moved_after_again_ended_in_the_dead_letter_queue(
    receiver: Receiver, stack: Stack, kept: Kept
) -> None:
    """And a dead letter that is still the one that was to be moved is not dead again."""
    (flaky,) = reported(receiver, f"--key {FLAKY}")["letters"]
    own = {"queue": stack.arn, "outcome": ActOutcome.DONE}
    kept.begin(60, queue="another")  # a minute ago; so are the next
    moves = [("twice", "m-1"), ("twice", "m-2"), ("undeleted", "m-3"), ("undeleted", "m-3")]
    for key, id in [*moves, (FLAKY, flaky["message"]["messageId"])]:
        kept.history.confirm(kept.history.begin([act(key, message_id=id, **own)]))
        kept.clock.stepped_seconds += 1
    assert [(each["key"], each["became"]) for each in reversed(reported(receiver)["acts"])] == [
        ("twice", "dead again"),
        ("twice", "waiting"),
        ("undeleted", "waiting"),
        ("undeleted", "waiting"),
        (FLAKY, "waiting"),
    ]


def test_a_page_runs_its_own_scripts_and_styles_alone() -> None:
    page = html_of("<style>b { color: red }</style><script>own()</script>", {})
    for kind in ("style", "script"):
        own = re.findall(rf"(?s)<{kind}>(.*?)</{kind}>", page)
        hashes = [f"'sha256-{b64encode(sha256(each.encode()).digest()).decode()}'" for each in own]
        assert (len(own) > 1, re.findall(rf"{kind}-src ([^;\"]*)", page)) == (True, [" ".join(hashes)])


def test_a_stack_without_a_history_has_a_page_all_the_same(receiver: Receiver, stack: Stack) -> None:
    del stack.outputs["HistoryTable"]
    ran = receiver.on("dlq list --out page.html --json")
    assert (ran.code, ran.json["acts"], "No history is kept" in ran.err) == (Exit.OK, 0, True)


NOW_MS = 1_800_000_000_000
MOVED = act("k", id="2027-01-15T07:00:00.000Z-1", outcome=ActOutcome.DONE)


def written(status: str, after_seconds: float) -> Record:
    """A record of the key, written so long after the act, by its expiry."""
    return Record(
        id="k",
        status=status,
        version="v",
        expiration=int(MOVED.at_ms / 1000 + after_seconds) + DEFAULT_RETENTION_SECONDS,
    )


@pytest.mark.parametrize(
    ("found", "fate"),
    [
        (None, Fate.WAITING),
        (written("COMPLETED", 5), Fate.COMPLETED),
        (written("COMPLETED", -5), Fate.COMPLETED),
        (written("FAILED", 5), Fate.FAILED),
        (written("FAILED", 0), Fate.FAILED),
        (written("FAILED", -5), Fate.WAITING),
        (written("INPROGRESS", 5), Fate.WAITING),
    ],
)
def test_a_failure_from_before_the_move_is_not_what_became_of_it(found: Record | None, fate: Fate) -> None:
    assert became(MOVED, found, NOW_MS, DEFAULT_RETENTION_SECONDS, dead=False) == fate


def test_only_a_move_becomes_something() -> None:
    for changed in ({"verb": Verb.DELETED}, {"outcome": ActOutcome.REFUSED}):
        other = act("k", id=MOVED.id, **changed)
        assert became(other, written("COMPLETED", 5), NOW_MS, DEFAULT_RETENTION_SECONDS, dead=False) is None


def test_a_secret_is_in_a_file_only_with_bodies_and_a_receipt_never(receiver: Receiver, stack: Stack) -> None:
    """It is planted in a body, in an attribute, and in a result. Whoever has a receipt could delete the dead letter."""
    card = f'{{"card": "{SECRET}"}}'
    stack.record("paid", "COMPLETED", card, data=f'"{SECRET}"')
    stack.bury("paid", card)
    attributes: Any = {"card": {"DataType": "String", "StringValue": SECRET}}
    stack.sqs.send_message(QueueUrl=stack.dead, MessageBody=SECRET, MessageAttributes=attributes)
    for name, option, times in (("without", "", 0), ("with", "--bodies", 4)):
        for ending in ("html", "jsonl"):
            told = receiver.on(f"dlq list --out {name}.{ending} {option}")
            text = Path(f"{name}.{ending}").read_text()
            assert (text.count(SECRET), SECRET in told.out + told.err, "receiptHandle" in text) == (times, False, False)


def test_a_text_cannot_end_the_data_or_call_for_anything_from_elsewhere() -> None:
    fragment = dlq_page.TEMPLATE.read_text("utf-8")
    page = html_of(fragment, {"text": HOSTILE})
    assert page.count("<script") == 3
    assert data_of(page) == {"text": HOSTILE}
    assert not re.search("[\u2028\u202a-\u202e\u2066-\u2069]", page)
    policy = re.search(r'content="(default-src[^"]*)"', page)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; base-uri 'none'; form-action 'none'; ")
    assert "unsafe" not in policy[1]
    own = html_of(fragment, {})
    assert not re.search(r"https?:|\bsrc=|\bhref=|@import|url\(|fetch\(|XMLHttp|innerHTML|<form[^>]*action", own)


@pytest.fixture
def hostile(receiver: Receiver, stack: Stack, kept: Kept) -> str:
    """A page with a dead letter and an act all of whose texts are hostile."""
    kept.done(20, FLAKY, queue=stack.arn, dead_letter_queue=stack.dead_arn, operator=HOSTILE, why=HOSTILE)
    failure = Failure(type="PermanentError", text=HOSTILE, permanent=True)
    stack.record("-h '$(reboot)'", "FAILED", HOSTILE, error=failure.to_json(), owner=HOSTILE)
    # SQS refuses control characters, where moto takes them.
    stack.bury("-h '$(reboot)'", HOSTILE, reason=HOSTILE, error_type=HOSTILE)
    receiver.on("dlq list --out page.html --bodies")
    return Path("page.html").read_text("utf-8")


@pytest.mark.parametrize("look", [("light", 800), ("dark", 1600)], ids=["light", "dark"])
def test_a_browser_shows_filters_selects_and_opens(
    receiver: Receiver, hostile: str, tmp_path: Path, look: tuple[str, int]
) -> None:
    scheme, width = look
    which = [DONE, FLAKY, CLOSED, "reboot"]
    told = seen(hostile, DRIVER.replace("SELECTED", json.dumps(which)), tmp_path, scheme=scheme, width=width)

    assert (told["title"], told["count"]) == ("Dead letters of transfers", "5 of 5 dead letters")
    assert (told["verdict"], told["group"], told["text"]) == ([CLOSED, "-h '$(reboot)'"], [FLAKY], [CLOSED])
    assert "1MOVEback to the queue" in told["plan"]
    assert told["became"] == "Of the moved messages: 1 dead again."
    assert (told["moved"], told["groupMoved"]) == (True, True)

    assert told["opened"].count(SHOWN) >= 3, "a text is shown as it is, and not obeyed"
    assert "free from2096-10-02T07:06:40.000Z" in told["opened"], "its record is beside it"
    assert f"moved, done; dead againby{SHOWN}" in told["opened"], "and its history"
    assert SHOWN in told["acts"]
    assert told["children"] == 0
    assert told["foreign"] == 0
    assert told["dark"] == (scheme == "dark")
    assert told["contrast"] >= 4.5, "WCAG 2.2, AA"
    assert not told["overflows"]

    assert (told["unselected"], told["none"]) == ([], [])
    printed = told["commands"]
    assert printed[DONE][0].split()[:3] == ["receiver", "dlq", "redrive"]
    assert "--group done" in printed["select the group done"][0]
    assert any("--include-permanent" in line for line in printed[CLOSED])
    assert not any("--include-permanent" in line for line in printed[FLAKY])
    lines = dict.fromkeys(line for each in printed.values() for line in each)
    assert len(lines) > 10
    assert not [line for line in lines if "--yes" in line], "each asks first"
    for line in lines:
        ran = receiver(line.replace("\\\n", "").removeprefix("receiver "))
        assert ran.code in (Exit.OK, Exit.LEFT), (line, ran.err)
        assert "no visible dead letters" not in ran.out, line


def test_a_resend_that_has_begun_is_finished_by_a_redrive_and_what_cannot_be_read_is_kept_or_deleted(
    receiver: Receiver, tmp_path: Path
) -> None:
    data = reported(receiver)
    letters = {each["key"]: each for each in data["letters"]}
    letters[FLAKY]["verdict"] = "UNSENT"
    letters[DONE] |= {"verdict": "MALFORMED", "key": None, "group": "unreadable", "reason": "\udfff", "typed_key": None}
    page = html_of(dlq_page.TEMPLATE.read_text("utf-8"), data)
    unreadable = letters[DONE]["message"]["messageId"]
    told = seen(page, DRIVER.replace("SELECTED", json.dumps([FLAKY, unreadable])), tmp_path)

    begins = {name: [line.split(" --")[0] for line in lines] for name, lines in told["commands"].items()}
    assert begins[FLAKY] == ["receiver dlq redrive", "receiver dlq archive", "receiver trace"]
    assert begins[unreadable] == ["receiver dlq archive", "receiver dlq delete"]
    assert r"\udfff" in told["opened"]


def test_even_markup_that_got_in_could_not_run_or_load(receiver: Receiver, tmp_path: Path) -> None:
    reported(receiver)
    page = Path("page.html").read_text("utf-8").replace("</html>", INTRUDER)
    driver = """
      at("intruder").click();
      const told = {title: document.title, styled: getComputedStyle(at("intruder")).position};
      fetch("data:,loaded").then(() => tell({...told, loaded: true}), () => tell({...told, loaded: false}));
    """
    assert seen(page, driver, tmp_path) == {"title": "Dead letters of transfers", "styled": "static", "loaded": False}


def test_five_thousand_dead_letters_stay_fluent(receiver: Receiver, tmp_path: Path) -> None:
    data = reported(receiver, "--bodies")
    (some,) = (each for each in data["letters"] if each["key"] == FLAKY)
    data["letters"] = [
        {
            **some,
            "key": f"letter-{place}",
            "group": f"group-{place % 300}",
            "message": {**some["message"], "body": "b" * 500},
        }
        for place in range(5000)
    ]
    (group,) = (each for each in data["groups"] if each["name"] == "ConnectionError@app.ledger")
    data["groups"] = [
        {**group, "name": f"group-{place}", "count": len(range(place, 5000, 300))} for place in range(300)
    ]
    told = seen(html_of(dlq_page.TEMPLATE.read_text("utf-8"), data), PACE, tmp_path)
    assert told["rows"] == 5000
    assert told["ready"] < 10_000
    assert max(told[name] for name in ("text", "all", "none", "arrow")) < 1000, told
    assert "select whole groups, or at most 1000 dead letters" in told["partly"]
