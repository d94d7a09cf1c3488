"""Results too large for their record: stored in S3 and read back for a replay.

A result is stored before its record is completed, under a name that is unique to this claim. If the completion is then
refused, nothing refers to the object. Objects expire by the bucket's own lifecycle rule, which must keep them at
least as long as the records.
"""

import gzip
import zlib
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol

from botocore.exceptions import BotoCoreError, ClientError

from idempotent_receiver.handler.attempt import dropped, inline, marked, marker
from idempotent_receiver.options import require_client, require_text
from idempotent_receiver.protocol.record import Record, idempotency_key
from idempotent_receiver.protocol.transitions import Basis

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

LARGEST_INLINE_BYTES = 350 * 1024
"""The largest record that keeps a call's result. DynamoDB's limit is 400 KB per item."""


class Results(Protocol):
    """Storage for large results."""

    def put(self, name: str, data: str) -> dict[str, str]:
        """Store a result under a unique name, and return its location. May raise any exception."""

    def get(self, place: dict[str, str], owned: str) -> str:
        """The result at a location that `put` returned. Raises ResultGone if it is not there, or if its name does not
        begin with `owned`, and ResultGone with `retry` if it may be there but could not be read.
        """


class ResultGone(Exception):
    """A result is no longer available; the text names the location. With `retry`, the result may still exist but could
    not be read.
    """

    def __init__(self, text: str, *, retry: bool = False) -> None:
        super().__init__(text)
        self.retry = retry


@dataclass(frozen=True, slots=True)
class S3Results:
    """Large results as objects in the S3 bucket `bucket`, compressed, and encrypted by S3 (SSE-S3) or with the KMS key
    `kms_key_id`. Object names begin with `prefix`. `client` is a boto3 S3 client.

    Give the bucket a lifecycle rule that expires objects no sooner than the records' retention. The function needs the
    permissions `s3:PutObject`, `s3:GetObject` and `s3:ListBucket`. Without the last, S3 says of a missing object that
    access is denied, so a replay is told to try again, however often.
    """

    bucket: str
    client: "S3Client"
    prefix: str = "results/"
    kms_key_id: str | None = None

    def __post_init__(self) -> None:
        require_text(self.bucket, "bucket", "the name of an S3 bucket")
        require_client(self.client, "s3", "client")
        if not isinstance(self.prefix, str):
            raise TypeError(f"prefix must be a string, such as 'results/'; it is {self.prefix!r}")
        if self.kms_key_id is not None:
            require_text(self.kms_key_id, "kms_key_id", "the id of a KMS key, or None")

    def put(self, name: str, data: str) -> dict[str, str]:
        """Write the object."""
        key = f"{self.prefix}{name}.json.gz"
        encryption: dict[str, Any] = {"ServerSideEncryption": "AES256"}
        if self.kms_key_id is not None:
            encryption = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": self.kms_key_id}
        body = gzip.compress(data.encode(), mtime=0)
        self.client.put_object(Bucket=self.bucket, Key=key, Body=body, ContentType="application/gzip", **encryption)
        return {"result": "s3", "bucket": self.bucket, "key": key}

    def get(self, place: dict[str, str], owned: str) -> str:
        """Read the object."""
        key, url = place.get("key", ""), _url(place)
        if place.get("bucket") != self.bucket or not key.startswith(f"{self.prefix}{owned}"):
            raise ResultGone(f"the result is in {url}, which is not this function's location for results")
        try:
            body = self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read()
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code")
            why = f"the result should be in {url}, but S3 answered {code}"
            raise ResultGone(why, retry=not _says_absent(error)) from error
        except BotoCoreError as error:
            why = f"the result is in {url}, but S3 did not answer: {type(error).__name__}"
            raise ResultGone(why, retry=True) from error
        return _unpacked(body, url)


def _says_absent(error: ClientError) -> bool:
    """Whether S3 says that there is no such object, so that no retry helps. Everything else may pass: throttling,
    expired credentials, a permission or a key that an operator disabled.

    Source: https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetObject.html
    """
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status == HTTPStatus.NOT_FOUND or error.response.get("Error", {}).get("Code") in (
        "NoSuchKey",
        "NoSuchBucket",
    )


def _unpacked(body: bytes, url: str) -> str:
    """The result in an object. Raises ResultGone if something else was written there."""
    try:
        text = gzip.decompress(body).decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ResultGone(f"the object {url} is not a result: {type(error).__name__}") from error
    if not text:
        raise ResultGone(f"the object {url} is not a result: it is empty")
    return text


def kept(run: Basis, data: str | None, largest_record_bytes: int, results: Results | None) -> str | None:
    """The record's `data` for a result: a small result itself; for a large one, its location or a note that it was
    dropped.

    Never raises an `Exception`: the effect took place, and a result that cannot be kept must not undo it.
    """
    within = inline(run, data, largest_record_bytes)
    if results is None or data is None or within == data:
        return within
    try:
        return marker(results.put(f"{idempotency_key(run.record.id)}/{run.record.version}", data))
    except Exception as error:  # noqa: BLE001  # `put` may raise anything
        return dropped(f"{why_dropped(within)}, and it could not be stored elsewhere: {type(error).__name__}")


def why_dropped(data: str | None) -> str | None:
    """Why the result was not kept, from a record's `data`; None if it was."""
    place = None if data is None else marked(data)
    return place.get("why") if place is not None and place.get("result") == "dropped" else None


def fetched(record: Record, results: Results | None) -> str | None:
    """The result of a COMPLETED record as JSON text; None if there is no result. Raises ResultGone."""
    place = None if record.data is None else marked(record.data)
    if place is None:
        return record.data
    if (why := why_dropped(record.data)) is not None:
        raise ResultGone(f"the result was not kept: {why}")
    if results is None:
        raise ResultGone(f"the result is in {_url(place)}, but this function has no `results` to read it from")
    return results.get(place, f"{idempotency_key(record.id)}/")


def _url(place: dict[str, str]) -> str:
    return f"s3://{place.get('bucket')}/{place.get('key')}"
