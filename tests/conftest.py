"""Settings for all tests: the tier of each, how many examples hypothesis tries, how a scenario's tests are selected,
and which tests share a process, because they share a server.
"""

from __future__ import annotations

import faulthandler
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from hypothesis import HealthCheck, Phase, settings

from tests.tiers import LONGEST_SECONDS, NIGHTLY, QUICK, staying_in_its_process, tier_of

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS = Path(__file__).parent

# A client without credentials must not look for them on the network, unless `make aws` says that they are there.
os.environ.setdefault("AWS_EC2_METADATA_DISABLED", "true")

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
# The same examples each time, so that a test fails for everybody; without shrinking, which takes minutes that only
# `make fuzz` has.
settings.register_profile(
    "bounded",
    max_examples=200,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    database=None,
    deadline=None,
    suppress_health_check=SLOW,
)
settings.register_profile(
    "long", max_examples=int(os.environ.get("EXAMPLES", "5000")), deadline=None, suppress_health_check=SLOW
)
settings.load_profile("long" if "EXAMPLES" in os.environ else "bounded")

GROUPS = {
    "e2e/test_consumer.py": "cloud",  # one cloud for each group, because a cloud takes seconds to start
    "e2e/test_fifo.py": "cloud",
    "e2e/test_moved_by_sqs.py": "cloud",
    "e2e/test_policy.py": "cloud",
    "e2e/test_alarms.py": "api",
    "e2e/test_secrets_deployed.py": "cloud",
    "e2e/test_doctor_deployed.py": "cloud",
    "e2e/test_managed_instances.py": "cloud",
    "e2e/test_api_deployed.py": "api",
    "e2e/test_openapi.py": "api",
    "e2e/test_sandbox.py": "sandbox",  # both write .build/cloud.env
    "e2e/test_named_cloud.py": "sandbox",
    "contract/": "engines",
}
"""By file or folder, the first that fits; other tests run in any process that is free."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let `-m` select a test by its tier, and `-k S17` the tests of a scenario."""
    item.add_marker(tier_of(item))
    for mark in item.iter_markers("scenario"):
        item.extra_keyword_matches.update(mark.args)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Hold a quick test to what makes it quick, and end the process of a test that hangs: xdist names it, and goes on
    with the others. No signal, which the library's own alarm needs, and no exception, which what is tested may catch. A
    debugger stops the watch.
    """
    tier = tier_of(item)
    seconds = LONGEST_SECONDS[NIGHTLY if "EXAMPLES" in os.environ else tier]
    stderr = item.config.stash[fault_handler_stderr_fd_key]
    ends = item.config.getini("faulthandler_exit_on_timeout")
    faulthandler.dump_traceback_later(seconds, file=stderr, exit=ends)
    try:
        with staying_in_its_process(quick=tier == QUICK):
            return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def group_of(nodeid: str) -> str:
    """The tests that run in one process with this one: those of its group, or of its file."""
    path = nodeid.partition("::")[0]
    within = path.removeprefix(f"{TESTS.name}/")
    return next((group for prefix, group in GROUPS.items() if within.startswith(prefix)), path)


@pytest.hookimpl(optionalhook=True)  # only xdist calls it
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distribute the tests by these groups. xdist's own (3.8) need a mark that it cannot set under pytest 9.2."""
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415

    class ByServer(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return ByServer(config, log)
