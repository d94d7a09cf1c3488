"""A model of S3 behind the faulty network of a random world: what is put there, and what a process is told of it."""

from __future__ import annotations

import gzip
from io import BytesIO
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError, EndpointConnectionError

if TYPE_CHECKING:
    from tests.simulation.random_world import Process, RandomWorld

BUCKET = "results"


class Bucket(dict[str, bytes]):
    def text(self, key: str) -> str | None:
        return gzip.decompress(self[key]).decode() if key in self else None


class BucketClient:
    """boto3's client, as one process sees it. Requests and answers are lost, as often as the plan says."""

    def __init__(self, world: RandomWorld, process: Process, bucket: Bucket, lost: float) -> None:
        self._world, self._process, self._bucket, self._lost = world, process, bucket, lost

    def put_object(self, *, Key: str, Body: bytes, **_: Any) -> None:  # noqa: N803  # boto3's names
        lost = self._away()
        if not lost or self._world.random.random() < 0.5:
            self._bucket[Key] = Body
        self._fail_if(lost)

    def get_object(self, *, Key: str, **_: Any) -> dict[str, Any]:  # noqa: N803
        self._fail_if(self._away())
        if Key not in self._bucket:
            raise ClientError({"Error": {"Code": "NoSuchKey"}}, "GetObject")
        return {"Body": BytesIO(self._bucket[Key])}

    def _away(self) -> bool:
        self._world.world.sleep(self._world.random.uniform(0.005, 0.05))
        return self._world.chance(self._lost)

    def _fail_if(self, lost: bool) -> None:
        if lost:
            self._process.invocation.bucket_lost = True
            self._process.invocation.fault_count += 2
            raise EndpointConnectionError(endpoint_url="https://results.s3.us-east-1.amazonaws.com")
