"""Two commands on one dead letter of a deployed consumer that is running, the first killed after one of its writes: at
most one body takes effect, and nothing vanishes.

Some cells of the matrix that `tests/unit/operations/dead_letters/test_matrix.py` goes through in memory.
"""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import pytest

from tests.e2e.conftest import AT_ONCE, FIFO
from tests.e2e.test_ends_deployed import RESTORE, archived, run
from tests.e2e.test_redrive_deployed import let_die, send

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.conftest import Deploy
    from tests.e2e.deployed import Deployed
    from tests.e2e.test_ends_deployed import Ended

OPENING = 1000
OLD, FIX, OTHER_FIX = 1, 10, 100
"""What each body moves, by which the balance tells whose effect is there."""
MOST_ROUNDS = 6


class Cell(NamedTuple):
    """A command that is killed after one of its writes, and another that comes then."""

    first: str
    after: tuple[int, str]
    second: str

    def __str__(self) -> str:
        return f"{self.first} killed after it {self.after[1]}, then {self.second}"


SENT, KEPT = (2, "has sent"), (2, "has stored")
BEGUN, SENT_AS_NEW, COMPLETED = (2, "has begun"), (3, "has sent"), (4, "has completed")

CELLS = [
    Cell("fix", BEGUN, "other-fix"),
    Cell("fix", SENT_AS_NEW, "finish"),
    Cell("fix", COMPLETED, "archive"),
    Cell("redrive", SENT, "archive"),
    Cell("archive", KEPT, "fix"),
    Cell("from-archive", SENT, "from-archive"),
    Cell("finish", SENT, "redrive"),
    Cell("fix", BEGUN, "delete"),
]
"""On either kind of queue, as are the three cases below."""


@dataclass
class Letter:
    """A dead letter that no handler ever saw, and its customers' books; its commands leave what they say at `told`."""

    bank: Deployed
    told: Path
    payer: str
    payee: str
    id: str = ""

    def do(self, command: str, *more: str, after: int | None = None) -> Ended:
        """One command on it, killed after so many writes if that is given."""
        stop = None if after is None else (after, "after", signal.SIGKILL)
        given = {
            "redrive": ("redrive",),
            "archive": ("archive",),
            "from-archive": ("redrive", "--from-archive"),
            "to-dlq": RESTORE,
            "fix": ("resend", "--body", self._body(FIX)),
            "other-fix": ("resend", "--body", self._body(OTHER_FIX)),
            "finish": ("resend",),
            "delete": ("delete", "--because", "a test"),
        }[command]
        return run(self.bank, self.told, *given, *(more or ("--key", self.id)), stop=stop)

    def kill(self, command: str, after: int) -> None:
        """The same; it must have come so far."""
        ended = self.do(command, after=after)
        assert ended.code == -signal.SIGKILL, f"it did not make so many writes: {ended}"

    def _body(self, amount: int) -> str:
        file = self.told.with_name(f"{amount}.json")
        if not file.exists():
            file.write_text(json.dumps(self.bank.transfer(self.payer, self.payee, amount)))
        return str(file)

    def seen(self) -> list[dict[str, Any]]:
        """What `dlq list` says of it, by copy."""
        listed = run(self.bank, self.told, "list", "--key", self.id)
        return [each for group in json.loads(listed.out)["groups"] for each in group["letters"]]

    def in_archive(self) -> bool:
        return any(each["key"] == self.id for each in archived(self.bank))

    def settle(self) -> None:
        """What an operator does who follows the triage, until nothing is left to do."""
        for _ in range(MOST_ROUNDS):
            found = {each["verdict"] for each in self.seen()}
            kept = self.in_archive()
            if not found and not kept:
                break
            if found:
                self.do("redrive")
            if kept:
                self.do("to-dlq")
        assert (self.seen(), self.in_archive()) == ([], False)
        self.bank.drained()

    def judge(self, *bodies: int) -> None:
        """Exactly one of these bodies has taken effect, and nothing is left."""
        self.settle()
        moved = OPENING - self.bank.balance(self.payer)
        assert moved in bodies
        assert self.bank.balance(self.payee) == moved


@pytest.fixture(scope="module", params=[[], [FIFO]], ids=["standard", "fifo"])
def bank(request: pytest.FixtureRequest, deployed: Deploy) -> Deployed:
    """A consumer of a standard queue, and one of a FIFO queue."""
    return deployed("matrix", edits=[*request.param, AT_ONCE], api=None)


@pytest.fixture(scope="module")
def stillborn(bank: Deployed) -> Iterator[Letter]:
    """Dead letters, one for each test; they died while the consumer was paused, all at once."""
    made = [Letter(bank, Path(), bank.new_account(OPENING), bank.new_account(0)) for _ in range(len(CELLS) + 3)]
    bank.pause()
    ids = send(bank, [json.dumps(bank.transfer(each.payer, each.payee, OLD)) for each in made])
    let_die(bank)
    bank.resume()
    for each, id in zip(made, ids, strict=True):
        each.id = id
    return iter(made)


@pytest.fixture
def letter(stillborn: Iterator[Letter], tmp_path: Path) -> Letter:
    made = next(stillborn)
    made.told = tmp_path / "told"
    return made


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_one_body_takes_effect_whichever_command_is_killed(letter: Letter, cell: Cell) -> None:
    if cell.first == "from-archive":
        assert letter.do("archive").code == 0
    if cell.first == "finish":
        letter.kill("fix", BEGUN[0])
    letter.kill(cell.first, cell.after[0])
    letter.do(cell.second)
    letter.judge(OLD, FIX, OTHER_FIX)


def test_a_resend_killed_after_its_send_then_a_redrive(letter: Letter) -> None:
    letter.kill("fix", SENT_AS_NEW[0])
    told = json.loads(letter.do("redrive").out)
    assert (told["plan"], told["resent"]) == ({"UNSENT": 1}, 1)
    letter.judge(FIX)


def test_two_restores_then_a_resend_of_one_and_a_redrive_of_the_other(letter: Letter) -> None:
    assert letter.do("archive").code == 0
    assert letter.do("to-dlq").code == 0
    assert letter.do("archive").code == 0
    doubled(letter)
    assert letter.do("to-dlq").code == 0
    one, other = (each["message_id"] for each in letter.seen())

    assert letter.do("fix", "--message-id", one).code == 0
    assert json.loads(letter.do("redrive", "--message-id", other).out)["dropped"] == 1
    letter.judge(FIX)


def doubled(letter: Letter) -> None:
    """A second object of an archived letter, as it is there when S3's versions of a removed one are taken back."""
    s3, bucket = letter.bank.aws.client("s3"), letter.bank.stack.outputs["ArchiveBucket"]
    for each in archived(letter.bank):
        if each["key"] == letter.id:
            (name,) = (
                found["Key"]
                for found in s3.list_objects_v2(Bucket=bucket)["Contents"]
                if each["message"]["messageId"] in found["Key"]
            )
            id = str(uuid4())
            each["message"]["messageId"] = id
            s3.put_object(Bucket=bucket, Key=f"{name.partition('/')[0]}/{id}.json", Body=json.dumps(each).encode())


def test_a_redrive_killed_then_a_resend_before_the_consumer_ran(letter: Letter) -> None:
    letter.bank.pause()
    letter.kill("redrive", SENT[0])
    letter.do("fix")
    letter.bank.resume()
    letter.judge(FIX)
