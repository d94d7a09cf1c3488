"""AWS error codes in botocore's exceptions."""

from botocore.exceptions import BotoCoreError, ClientError


def code_of(error: ClientError | BotoCoreError) -> str:
    """AWS's error code, or the name of botocore's own exception."""
    return error.response["Error"]["Code"] if isinstance(error, ClientError) else type(error).__name__
