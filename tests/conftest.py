"""Settings for all tests: the tier of each, how many examples hypothesis tries, how a scenario's tests are selected,
and which tests share a process, because they share a server.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, settings

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS = Path(__file__).parent

# A client without credentials must not look for them on the network.
os.environ["AWS_EC2_METADATA_DISABLED"] = "true"

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
    "e2e/test_dashboard.py": "cloud",
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


TIERS = {
    "chaos/test_chaos.py": "nightly",
    "contract/test_differential.py::test_memory_and_an_engine_are_twins[dynamodb_local]": "nightly",
    "contract/test_differential.py::test_memory_and_an_engine_are_twins[ministack]": "nightly",
    "e2e/test_redrive_deployed.py::test_a_message_comes_back_twice": "slow",
    "e2e/": "nightly",
    "fuzz/test_fuzz_consumer.py::test_a_store_that_does_not_return_the_record": "nightly",
    "fuzz/test_fuzz_consumer.py::test_a_flaky_store": "nightly",
    "model/": "nightly",
    "simulation/test_explore.py::test_a_planted_bug_is_found": "nightly",
    "simulation/test_explore.py::test_every_schedule_keeps_the_invariants[2x1-2]": "nightly",
    "simulation/test_explore.py::test_every_schedule_keeps_the_invariants[2x1-renewed": "nightly",
    "simulation/test_explore.py::test_every_schedule_keeps_the_invariants[2x1-unclaimed": "nightly",
    "simulation/test_explore.py::test_every_schedule_keeps_the_invariants[2x2-unclaimed": "nightly",
    "simulation/test_scenarios_": "quick",
    "simulation/test_simulate.py::test_a_planted_bug": "nightly",
    "simulation/test_simulate.py::test_worlds_in_which_claims_are_released": "nightly",
    "test_costs.py": "quick",
    "test_promises.py": "quick",
    "unit/app/test_api.py": "quick",
    "unit/operations/cli/test_dlq_page.py::test_a_browser": "nightly",
    "unit/operations/cli/test_dlq_page.py::test_five_thousand": "nightly",
    "unit/operations/starter/test_project.py::test_its_template_is_clean": "nightly",
    "unit/operations/starter/test_source.py::test_a_checkout_that_does_not_build": "nightly",
    "unit/templates/test_operations.py::test_every_variant_is_clean": "nightly",
    "unit/templates/test_template.py::test_a_deployments_parameters": "nightly",
    "unit/templates/test_template.py::test_an_environment_that": "nightly",
    "unit/templates/test_template.py::test_every_variant_is_clean": "nightly",
    "unit/templates/test_template.py::test_what_samconfig_says": "nightly",
    "unit/templates/test_template_switches.py::test_a_switch": "nightly",
    "unit/batch/": "quick",
    "unit/dynamodb/test_s": "quick",
    "unit/handler/test_process_end.py": "slow",
    "unit/handler/": "quick",
    "unit/http/": "quick",
    "unit/protocol/": "quick",
    "unit/sqs/": "quick",
    "unit/workflow/": "quick",
}
"""By file or folder, the first that fits: `quick` tests run in `make quick` and `make test`, `nightly` ones in
`make nightly`, and all others, `slow`, in `make test`. A mark on a test or its module says otherwise.
"""

QUICK = "quick"
PROCESS_OR_NETWORK = {
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.system",
    "socket.connect",
    "subprocess.Popen",
}


class _Watch:
    """What runs at present: a test of `make quick`, or another."""

    quick = False

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.quick and event in PROCESS_OR_NETWORK:
            pytest.fail(f"a quick test starts no process and calls no server, and this one did ({event}): mark it slow")


_watch = _Watch()
sys.addaudithook(_watch)


def tier_of(item: pytest.Item) -> str:
    """The nearest mark's, else its folder's."""
    if "[memory" in item.nodeid:
        return QUICK
    marked = (mark.name for mark in item.iter_markers() if mark.name in ("slow", "nightly", QUICK))
    within = item.nodeid.removeprefix(f"{TESTS.name}/")
    by_folder = (tier for prefix, tier in TIERS.items() if within.startswith(prefix))
    return next(marked, next(by_folder, "slow"))


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let `-m` select a test by its tier, and `-k S17` the tests of a scenario."""
    item.add_marker(tier_of(item))
    for mark in item.iter_markers("scenario"):
        item.extra_keyword_matches.update(mark.args)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Hold a quick test to what makes it quick."""
    _watch.quick = tier_of(item) == QUICK
    try:
        return (yield)
    finally:
        _watch.quick = False


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
