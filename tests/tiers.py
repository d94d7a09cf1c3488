"""Which tests run in `make quick`, in `make test` and in `make nightly`, and what makes a quick test quick."""
# ruff: noqa: E501  # a test's name is as long as it is

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

QUICK, SLOW, NIGHTLY = "quick", "slow", "nightly"
LONGEST_SECONDS = {QUICK: 120, SLOW: 600, NIGHTLY: 3600}
"""A test that takes longer hangs, even on a busy machine."""

TIERS = {
    "chaos/test_chaos.py": NIGHTLY,
    "contract/test_differential.py::test_memory_and_an_engine_are_twins[dynamodb_local]": NIGHTLY,
    "contract/test_differential.py::test_memory_and_an_engine_are_twins[ministack]": NIGHTLY,
    "contract/test_idemkit_vectors.py::test_every_vector_passes[dynamodb_local]": NIGHTLY,
    "contract/test_packs_isolation.py": NIGHTLY,
    "contract/test_store_processes.py": NIGHTLY,
    "contract/test_wire_differential.py": NIGHTLY,
    "e2e/test_redrive_deployed.py::test_a_message_comes_back_twice_within_five_minutes_and_is_handled_once[fifo": NIGHTLY,
    "e2e/test_redrive_deployed.py::test_a_message_comes_back_twice": SLOW,
    "e2e/": NIGHTLY,
    "fuzz/test_fuzz_consumer.py::test_a_store_that_does_not_return_the_record": NIGHTLY,
    "fuzz/test_fuzz_consumer.py::test_a_flaky_store": NIGHTLY,
    "model/": NIGHTLY,
    "simulation/test_explore.py::test_a_planted_bug_is_found": NIGHTLY,
    "simulation/test_explore.py::test_every_schedule_keeps_the_invariants[2x1-2]": NIGHTLY,
    "simulation/test_explore.py::test_every_schedule_keeps_the_invariants[2x1-renewed": NIGHTLY,
    "simulation/test_explore.py::test_every_schedule_keeps_the_invariants[2x1-unclaimed": NIGHTLY,
    "simulation/test_explore.py::test_every_schedule_keeps_the_invariants[2x1-sends-rollbac": NIGHTLY,
    "simulation/test_explore.py::test_every_schedule_keeps_the_invariants[2x1-sends-t": NIGHTLY,
    "simulation/test_explore.py::test_every_schedule_keeps_the_invariants[2x2-unclaimed": NIGHTLY,
    "simulation/test_explore_planted.py::test_a_waived_rule_does_not_hold[2x1-sends-renewed": NIGHTLY,
    "simulation/test_explore_planted.py::test_a_waived_rule_does_not_hold[2x2-sends-unclaimed-I2": NIGHTLY,
    "simulation/test_explore_resends.py::test_a_planted_bug_is_found_and_told[deletes": NIGHTLY,
    "simulation/test_explore_resends.py::test_at_most_one_body_takes_effect_and_nothing_vanishes[resend-1": NIGHTLY,
    "simulation/test_explore_resends.py::test_at_most_one_body_takes_effect_and_nothing_vanishes[resend-crossed-0": NIGHTLY,
    "simulation/test_explore_resends.py::test_at_most_one_body_takes_effect_and_nothing_vanishes[resend-redrive-f": NIGHTLY,
    "simulation/test_explore_worlds.py::test_every_schedule_keeps_the_invariants[2x1-http-expires-1": NIGHTLY,
    "simulation/test_explore_worlds.py::test_every_schedule_keeps_the_invariants[2x1-http-large-1": NIGHTLY,
    "simulation/test_reached.py": NIGHTLY,
    "simulation/test_scenarios_ahead.py::test_what_has_not_started_at_the_deadline_is_released_in_eight_requests_at_most[0.0]": NIGHTLY,
    "simulation/test_scenarios_ahead.py::test_what_has_not_started_at_the_deadline_is_released": SLOW,
    "simulation/test_scenarios_endings.py::test_a_batch_of_thousands_is_done_in_linear_requests_and_time[10000": NIGHTLY,
    "simulation/test_scenarios_keys.py::test_thousands_of_messages_of_one_key_run_once_with_one_claim[10000": NIGHTLY,
    "simulation/test_scenarios_renewed.py::test_a_handler_that_outlives_the_twelve_hours_of_sqs_still_runs_once[2-1": NIGHTLY,
    "simulation/test_scenarios_renewed.py::test_a_handler_that_outlives": SLOW,
    "simulation/test_scenarios_renewed.py::test_a_queue_that_redrives_meanwhile_loses_nothing": SLOW,
    "simulation/test_scenarios_": QUICK,
    "simulation/test_simulate.py::test_a_planted_bug": NIGHTLY,
    "simulation/test_simulate.py::test_clocks_further_apart": NIGHTLY,
    "simulation/test_simulate.py::test_several_hundred_worlds": NIGHTLY,
    "simulation/test_simulate.py::test_worlds_in_which_claims_are_released": NIGHTLY,
    "simulation/test_simulate_calls.py::test_random_worlds_keep_the_invariants_and_settle[calls-150": NIGHTLY,
    "simulation/test_simulate_calls.py::test_random_worlds_keep_the_invariants_and_settle[workflow-100": NIGHTLY,
    "simulation/test_wire.py::test_a_bug_planted": NIGHTLY,
    "simulation/test_wire.py::test_worlds_on_the_wire_keep_the_invariants_and_settle[100": NIGHTLY,
    "simulation/test_worlds.py::test_the_first_worlds_keep_the_invariants[more": NIGHTLY,
    "test_nightly.py::test_make_tells_a_wrong_value_by_its_key[simulate-SEEDS": SLOW,
    "test_nightly.py::test_make_tells_a_wrong_value_by_its_key": NIGHTLY,
    "test_promises.py": QUICK,
    "unit/app/test_api.py": QUICK,
    "unit/benchmarks/test_contention.py::test_no_message_fails_whose_account_three_other_workers_read_and_write[3": NIGHTLY,
    "unit/benchmarks/test_contention.py::test_what_two_writes_cost_that_four_workers_contend_for[200-T": NIGHTLY,
    "unit/benchmarks/test_contention.py::test_what_two_writes_cost_that_four_workers_contend_for[2000-": NIGHTLY,
    "unit/benchmarks/test_contention.py": SLOW,
    "unit/benchmarks/": QUICK,
    "unit/dynamodb/test_under_moto.py::test_a_batch_of_any_size[100": NIGHTLY,
    "unit/function/": QUICK,
    "unit/operations/cli/test_dlq_page.py::test_a_browser": NIGHTLY,
    "unit/operations/cli/test_dlq_page.py::test_five_thousand": NIGHTLY,
    "unit/operations/cli/test_help.py": NIGHTLY,
    "unit/operations/cli/test_refusals.py": NIGHTLY,
    "unit/operations/dead_letters/test_many.py": NIGHTLY,
    "unit/operations/dead_letters/test_matrix.py::test_one_body": SLOW,
    "unit/operations/dead_letters/test_matrix.py::test_every_pair": NIGHTLY,
    "unit/operations/dead_letters/test_triples.py::test_each_message_takes_effect_once_in_many": NIGHTLY,
    "unit/operations/doctor/": QUICK,
    "unit/operations/starter/test_source.py::test_a_checkout_that_does_not_build": NIGHTLY,
    "unit/templates/test_component.py::test_a_template_with_it_is_clean": NIGHTLY,
    "unit/templates/test_edits.py::test_an_edited": NIGHTLY,
    "unit/templates/test_edits.py::test_what_else_people_deploy": NIGHTLY,
    "unit/templates/test_deploy.py": NIGHTLY,
    "unit/test_options.py": QUICK,
    "unit/test_pages.py": QUICK,
    "unit/test_telemetry.py": QUICK,
    "unit/testing/test_judgement.py": QUICK,
    "unit/testing/test_world.py": QUICK,
    "unit/worker/test_leases.py": QUICK,
    "unit/worker/test_main.py::test_a_patch_under_which_no_message_could_be_handled_ends_the_worker[gevent's": NIGHTLY,
    "unit/batch/": QUICK,
    "unit/dynamodb/test_s": QUICK,
    "unit/test_process_end.py": SLOW,
    "unit/handler/": QUICK,
    "unit/http/": QUICK,
    "unit/protocol/": QUICK,
    "unit/transaction/": QUICK,
    "unit/sqs/": QUICK,
    "unit/workflow/": QUICK,
}
"""By folder, file or test, the first that fits: `quick` tests run in `make quick` and `make test`, `nightly` ones in
`make nightly`, and all others, `slow`, in `make test`. A mark on a test or its module counts for more.
"""

PROCESS_OR_NETWORK = {
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.system",
    "socket.connect",
    "subprocess.Popen",
}
"""The events that Python tells its audit hooks before it does these."""


def tier_of(item: pytest.Item) -> str:
    """The nearest mark's, else the table's; what is tested in memory is quick."""
    marked = (mark.name for mark in item.iter_markers() if mark.name in (QUICK, SLOW, NIGHTLY))
    within = item.nodeid.removeprefix("tests/")
    in_table = (tier for prefix, tier in TIERS.items() if within.startswith(prefix))
    in_memory = within.startswith("contract/") and "[memory" in within
    return next(marked, QUICK if in_memory else next(in_table, SLOW))


_staying = False


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if _staying and event in PROCESS_OR_NETWORK:
        pytest.fail(f"a quick test starts no process and calls no server, and this one did ({event}): mark it slow")


sys.addaudithook(_refuse)


@contextlib.contextmanager
def staying_in_its_process(*, quick: bool) -> Iterator[None]:
    """Fail what starts a process or calls a server within the block, if it is a quick test."""
    global _staying  # noqa: PLW0603  # an audit hook is for the whole process, and for ever
    _staying = quick
    try:
        yield
    finally:
        _staying = False
