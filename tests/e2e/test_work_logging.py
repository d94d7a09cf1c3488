"""The log of `receiver work`, in real processes: it is the handler's module that configures it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.test_work import Place

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.deployed import Aws

BY_DICT = """config.dictConfig({
    "version": 1,
    "formatters": {"mine": {"format": "mine: %(message)s"}},
    "handlers": {"mine": {"class": "logging.StreamHandler", "formatter": "mine"}},
    "root": {"level": "INFO", "handlers": ["mine"]},
})"""
OF_ITS_OWN = """own = logging.StreamHandler()
own.setFormatter(logging.Formatter("own: %(message)s"))
logging.getLogger("orders").addHandler(own)"""


@pytest.fixture
def place(aws: Aws, tmp_path: Path) -> Place:
    return Place(aws, tmp_path)


def log_of(place: Place, monkeypatch: pytest.MonkeyPatch, configures: str) -> list[str]:
    """What a worker has logged whose handler's module runs this code, after one message."""
    monkeypatch.setenv("CONFIGURES", configures)
    monkeypatch.setenv("POWERTOOLS_LOG_LEVEL", "DEBUG")
    place.send("a")
    with place.worker(handler="worker_logging:handle") as worker:
        place.wait_for(place.settled, 30)
        worker.terminate()
        assert worker.wait(25) == 0
    return (place.folder / "log").read_text().splitlines()


@pytest.mark.parametrize(
    ("configures", "shipped"),
    [
        ("", ["shipped a"]),
        pytest.param(
            "logging.basicConfig(level=logging.INFO, format='mine: %(message)s')",
            ["mine: shipped a"],
            marks=pytest.mark.slow,
        ),
        (BY_DICT.replace("1,", "1, 'disable_existing_loggers': False,"), ["mine: shipped a"]),
        (OF_ITS_OWN, ["own: shipped a"]),
        ("logging.getLogger().setLevel(logging.WARNING)", []),
    ],
    ids=["nothing", "basicConfig", "dictConfig", "own handler", "level"],
)
def test_what_a_module_configures_stays_and_nothing_is_logged_twice(
    place: Place, monkeypatch: pytest.MonkeyPatch, configures: str, shipped: list[str]
) -> None:
    """A Powertools Logger, as the consumer's own is, has a handler of its own, and hides its lines from the root's. The
    module imports another consumer first, whose Logger does not yet know what the root's will be.
    """
    lines = log_of(place, monkeypatch, configures)

    assert [line for line in lines if line.endswith("shipped a")] == shipped
    assert len([line for line in lines if line.startswith("{") and '"message":"completed"' in line]) == 1
    assert not [line for line in lines if line.endswith("completed")]


def test_boto_is_quiet_unless_a_module_sets_its_level(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process would say where it has found its credentials."""
    configures = "logging.basicConfig(level=logging.INFO); logging.getLogger('boto3').setLevel(logging.ERROR)"
    lines = log_of(place, monkeypatch, configures)

    assert [line.partition("boto at ")[2] for line in lines if "boto at" in line] == ["40 and 30"]
    assert not [line for line in lines if "Found credentials" in line]


def test_a_worker_says_in_the_modules_form_why_it_ends(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although `dictConfig` disables the loggers that are there, unless it is told not to."""
    monkeypatch.setenv("CONFIGURES", BY_DICT)
    place.send("long", seconds=60)

    with place.worker("--time-limit", "2", handler="worker_logging:handle"):
        place.wait_for(lambda: "a worker process ended with status" in (place.folder / "log").read_text(), 30)

    why = "has run for more than 2 seconds; this process ends"
    told = [line for line in (place.folder / "log").read_text().splitlines() if line.endswith(why)]
    assert [line.partition("handler for ")[0] for line in told[:1]] == ["mine: the "]
