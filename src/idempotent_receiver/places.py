"""What may be told of any error without its text: the place that raised it, and codes of AWS and HTTP.

A place is `module.function:line`. The innermost one in the user's own code comes first: the line inside a library that
raised is the same for many causes. A file is the user's own if no installed distribution lists it in its RECORD, and it
is neither Python's nor this library's. The folder does not tell, because in Lambda all of them lie side by side.
"""

import re
import traceback
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import Distribution


def place_of(raised: TracebackType | None, *, of_caller: bool) -> str | None:
    """The innermost place in the user's own code and, if another place raised, that one: `app.charge:7, in http.get:3`.

    If `of_caller`, what this library has found wrong was raised by its caller.
    """
    frames = list(traceback.walk_tb(raised))
    # A handler's mistake is in the handler's own line, not where this library detected it.
    while of_caller and len(frames) > 1 and frames[-1][0].f_globals.get("__name__", "").startswith(f"{_LIBRARY}."):
        frames.pop()
    if not frames:
        return None
    last = _named(*frames[-1])
    own = next((_named(*each) for each in reversed(frames) if _is_own(each[0].f_code.co_filename)), last)
    return last if own == last else f"{own}, in {last}"


def _named(frame: FrameType, line: int) -> str:
    return f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_name}:{line}"


_LIBRARY = __name__.rpartition(".")[0]
_NOT_OWN = frozenset(Path(file).parent for file in (traceback.__file__, __file__))
"""The folders of Python and of this library, which may be there without a distribution."""


def _is_own(file: str) -> bool:
    path = Path(file)
    # Generated and compiled code has no path, or one on the machine that built it.
    return path.is_absolute() and _NOT_OWN.isdisjoint(path.parents) and file not in _installed()


@cache
def _installed() -> frozenset[str]:
    """The Python files of all installed distributions. Read once, at the first failure: it takes some milliseconds."""
    from importlib.metadata import distributions  # noqa: PLC0415

    found: set[str] = set()
    for each in distributions():
        with suppress(Exception):  # a damaged distribution must not hide an error
            found.update(_files(each))
    return frozenset(found)


def _files(distribution: "Distribution") -> Iterator[str]:
    folder = Path(str(distribution.locate_file(""))).absolute()
    for line in (distribution.read_text("RECORD") or "").splitlines():
        file = line.partition(",")[0]
        if file.endswith(".py"):
            yield str(folder / file)


def codes_of(error: BaseException) -> str | None:
    """AWS's error code and reasons for throttling, and the HTTP status, if `error` has any. Never raises."""
    try:
        return ", ".join(_codes(error)) or None
    except Exception:  # noqa: BLE001  # an error may have anything where others have these
        return None


def held(error: object) -> dict[str, Any]:
    """An object's own attributes. `getattr` could run the user's code, which may raise anything."""
    found: dict[str, Any] = object.__getattribute__(error, "__dict__")
    return found


def _codes(error: BaseException) -> Iterator[str]:
    its = held(error)
    response: Any = its.get("response")
    if _is(error, "botocore.exceptions", "ClientError"):
        # DynamoDB's model has the two spellings.
        throttled = (*response.get("ThrottlingReasons", ()), *response.get("throttlingReasons", ()))
        codes = dict.fromkeys((response["Error"].get("Code"), *(each.get("reason") for each in throttled)))
        codes.pop(type(error).__qualname__, None)  # botocore names a class after its code
        yield from [each for each in codes if isinstance(each, str) and _CODE.fullmatch(each)][:_MOST]
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    elif _is(error, "urllib.error", "HTTPError"):
        status = its.get("code")
    else:  # requests and httpx keep the response, aiohttp the status
        status = its.get("status") if response is None else held(response).get("status_code")
    if type(status) is int and status in _STATUSES:
        yield f"HTTP {status}"


_CODE = re.compile(r"[A-Za-z0-9.]{1,64}")
"""What has another form may be a text."""
_MOST = 4
"""So many codes keep a record within one DynamoDB write unit (1 KB)."""
_STATUSES = range(100, 600)


def _is(error: BaseException, module: str, name: str) -> bool:
    """Whether an error is of a class, which is not imported for that."""
    return any((each.__module__, each.__name__) == (module, name) for each in type(error).__mro__)
