"""What handlers return, what a record keeps of it, and an S3 bucket behind a faulty network."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any
from zlib import crc32

from idempotent_receiver.handler.attempt import MARKER
from tests.simulation.network_faults import sender_of
from tests.simulation.points import BUCKET_FAULTS, RESULT
from tests.simulation.reached import mark

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tests.simulation.process import Process
    from tests.simulation.simulation import Simulation

FORMS = ("text", "object", "record", "marker", "large", "large")
BUCKET = "results"


def result_of(forms: Sequence[str], key: str, body: str) -> Any:
    """The result for a key and its payload, in the form that falls to it."""
    text = f"done {body}"
    match forms[crc32(key.encode()) % len(forms)]:
        case "object":
            return {"done": text}
        case "record":
            return {"id": key, "status": "INPROGRESS", "version": "w0.0-0", "data": text, "expiration": 0}
        case "marker":
            return {MARKER: {"result": "s3", "bucket": BUCKET, "key": key, "done": text}}
        case "large":
            return text + 1500 * "."
    return text


class Bucket:
    """The bucket: its objects, and the invocations that were told that it had failed."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.refused: set[str] = set()

    def keeps(self, item: dict[str, Any], expected: Any, without_bucket: Collection[str]) -> bool:
        """Whether a completed record has this result, or says truly where it is or why it is gone. `without_bucket`:
        the invocations that had nowhere to put it.
        """
        found = json.loads(item.get("data", "null"))
        if found == expected:
            return True
        # Only what is large is kept elsewhere.
        if (
            not isinstance(expected, str)
            or len(expected) < 1000
            or not isinstance(found, dict)
            or set(found) != {MARKER}
        ):
            return False
        marker = found[MARKER]
        if marker["result"] == "s3":
            kept = self.objects.get(marker["key"])
            return kept is not None and json.loads(gzip.decompress(kept)) == expected
        return item["owner"] in without_bucket or item["owner"] in self.refused


class BucketClient:
    def __init__(self, simulation: Simulation, process: Process) -> None:
        self.simulation = simulation
        self.process = process
        self.random = simulation.bucket_random

    def put_object(self, *, Key: str, Body: bytes, **_: Any) -> None:  # noqa: N803  # boto3's names
        simulation, sender = self.simulation, sender_of(self.process)
        with sender.waiting_at({RESULT}):
            simulation.disturbances.provoke(sender, {RESULT})
            simulation.world.sleep(self.random.uniform(0.005, 0.02))
            fault = None
            if not simulation.quiet and self.random.random() < simulation.plan.bucket_faults:
                fault = self.random.choice(BUCKET_FAULTS)
                sender.fault_count += 1
                simulation.log(f"{sender.name}: {Key[:20]} meets: {fault}")
                mark(f"{RESULT}: {fault}")
            if fault == "slow":
                simulation.world.sleep(self.random.choice([0.1, 2.0, 9.0]))
        if fault != "refused":
            simulation.bucket.objects[Key] = Body
        if fault in ("refused", "lost answer"):
            simulation.bucket.refused.add(sender.name)
            raise ConnectionError(fault)

    def get_object(self, *, Key: str, **_: Any) -> Any:  # noqa: N803
        raise AssertionError(f"a queue's consumer reads no results: {Key}")
