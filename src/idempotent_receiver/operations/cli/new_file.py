"""A new file that a command writes. It may hold bodies, so only the operator can read it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from idempotent_receiver.operations.account import UsageError


@contextmanager
def new_file(option: str, file: Path) -> Iterator[TextIO]:
    """Yields a stream; the file appears with what was written once the block succeeds, and not at all if it fails.

    Only the owner may read the file, and no file is ever replaced. Because the block may take long, the name is also
    checked before it. Raises UsageError, naming the option, if the file cannot be written.
    """
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    replaced = UsageError(f"{option} {file} exists and is never replaced: choose another name")
    if file.exists():
        raise replaced
    try:
        part.touch(mode=0o600, exist_ok=False)
        with part.open("w", encoding="utf-8") as opened:
            yield opened
        file.hardlink_to(part)  # fails if the name is taken
    except FileExistsError:
        raise replaced from None
    except OSError as error:
        raise UsageError(f"{option} {file}: {error.strerror}") from None
    finally:
        with suppress(OSError):
            part.unlink()
