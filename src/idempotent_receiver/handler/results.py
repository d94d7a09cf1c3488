"""Results that are too large for their record: kept in S3 beside it, and read back when they are asked for.

A result is written before its record is completed, under a name that only this claim could have made; if the
completion is then refused, what was written is an orphan that nothing points to. Objects end by the bucket's own
lifecycle, which must not be shorter than the records' retention.
"""

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Protocol

from botocore.exceptions import BotoCoreError, ClientError

from idempotent_receiver.handler.attempt import dropped, marked, marker
from idempotent_receiver.options import require_client
from idempotent_receiver.protocol.record import Record
from idempotent_receiver.protocol.transitions import Claimed

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

LARGEST_INLINE_BYTES = 350 * 1024
"""The size of a record up to which a result that somebody waits for stays in it: an item may have 400 KB."""


class Results(Protocol):
    """Where large results go."""

    def put(self, name: str, data: str) -> dict[str, str]:
        """Keep a result under a name that is never used twice; what is needed to find it again. May raise."""

    def get(self, told: dict[str, str], owned: str) -> str:
        """The result that `put` told of. Raises ResultGone; a name that does not begin with `owned` is not read."""


class ResultGone(Exception):
    """A result is not where it was kept; the text names the place."""


@dataclass(frozen=True, slots=True)
class S3Results:
    """Large results as objects of the S3 bucket `bucket`: compressed, and encrypted by S3 (SSE-S3), or under the key
    `kms_key_id`. Names begin with `prefix`. `client` is a boto3 client for S3.

    Give the bucket a lifecycle rule that ends objects after the records' retention and no sooner. Wanted are the
    permissions `s3:PutObject` and `s3:GetObject`, and `s3:ListBucket` lest a missing object look like a refusal.
    """

    bucket: str
    client: "S3Client"
    prefix: str = "results/"
    kms_key_id: str | None = None

    def __post_init__(self) -> None:
        require_client(self.client, "s3", "client")

    def put(self, name: str, data: str) -> dict[str, str]:
        """Write the object."""
        key = f"{self.prefix}{name}.json.gz"
        encryption: dict[str, Any] = {"ServerSideEncryption": "AES256"}
        if self.kms_key_id is not None:
            encryption = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": self.kms_key_id}
        import gzip  # noqa: PLC0415  # few results are large

        body = gzip.compress(data.encode(), mtime=0)
        self.client.put_object(Bucket=self.bucket, Key=key, Body=body, ContentType="application/gzip", **encryption)
        return {"result": "s3", "bucket": self.bucket, "key": key}

    def get(self, told: dict[str, str], owned: str) -> str:
        """Read the object."""
        key, place = told.get("key", ""), f"s3://{told.get('bucket')}/{told.get('key')}"
        if told.get("bucket") != self.bucket or not key.startswith(f"{self.prefix}{owned}"):
            raise ResultGone(f"the result is in {place}, which is not where this function keeps such results")
        import gzip  # noqa: PLC0415  # few results are large

        try:
            body = self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read()
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code")
            raise ResultGone(f"the result should be in {place}, and S3 answers {code}") from error
        except BotoCoreError as error:
            raise ResultGone(f"the result is in {place}, and S3 could not be asked: {type(error).__name__}") from error
        return gzip.decompress(body).decode()


def fits(held: Claimed, data: str | None, largest_record_bytes: int) -> bool:
    """Whether a result may stay in its record."""
    return data is None or _size_with(held, data) <= largest_record_bytes


def kept(held: Claimed, data: str | None, largest_record_bytes: int, results: Results | None) -> str | None:
    """What the record says of a result: the result itself while it is small, where it went, or that it was dropped.

    Never raises an `Exception`: the effect is done, and a result that cannot be kept must not undo that.
    """
    if data is None or fits(held, data, largest_record_bytes):
        return data
    too_large = f"too large: a record of {_size_with(held, data)} bytes, where {largest_record_bytes} are kept"
    if results is None:
        return dropped(too_large)
    try:
        return marker(results.put(f"{_owned(held.record.id)}{held.record.version}", data))
    except Exception as error:  # noqa: BLE001  # whatever the place of results raises
        return dropped(f"{too_large}, and it could not be put elsewhere: {type(error).__name__}")


def fetched(record: Record, results: Results | None) -> str | None:
    """The result that a COMPLETED record tells of, as JSON text; None for none. Raises ResultGone."""
    told = None if record.data is None else marked(record.data)
    if told is None:
        return record.data
    if told.get("result") == "dropped":
        raise ResultGone(f"the result was not kept: {told.get('why')}")
    if results is None:
        raise ResultGone(f"the result is in s3://{told.get('bucket')}/{told.get('key')}, and this function reads none")
    return results.get(told, _owned(record.id))


def _size_with(held: Claimed, data: str) -> int:
    return held.record.size_bytes + len("data") + len(data.encode())


def _owned(id: str) -> str:
    """What the names of a record's results begin with."""
    return f"{sha256(id.encode('utf-8', 'surrogatepass')).hexdigest()}/"
