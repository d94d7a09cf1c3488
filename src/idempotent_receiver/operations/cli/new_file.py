"""A new file that a command writes, for the operator alone: it may hold bodies."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from idempotent_receiver.operations.account import UsageError


@contextmanager
def new_file(option: str, file: Path) -> Iterator[TextIO]:
    """What is written in the block is in the file once it has ended, and nothing is where it failed.

    Nobody else may read it, and no file is ever replaced: the name is tried before the block as well, for what it does
    takes its time. Raises UsageError, which names the option, where the file cannot be written.
    """
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    replaced = UsageError(f"{option} {file} exists, and is not replaced: give another name")
    if file.exists():
        raise replaced
    try:
        part.touch(mode=0o600, exist_ok=False)
        with part.open("w", encoding="utf-8") as opened:
            yield opened
        file.hardlink_to(part)  # which refuses a name that is taken
    except FileExistsError:
        raise replaced from None
    except OSError as error:
        raise UsageError(f"{option} {file}: {error.strerror}") from None
    finally:
        with suppress(OSError):
            part.unlink()
