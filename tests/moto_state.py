"""What moto holds: taken once, it is there again without the dozens of requests that made it."""

from __future__ import annotations

import copyreg
import threading
from copy import deepcopy
from typing import Any

from moto.backends import get_backend

Backends = dict[str, dict[str, dict[str, Any]]]
"""By service, account and region."""

SERVICES = ("dynamodb", "logs", "s3", "sqs")
"""A copy of a function would be lost: moto finds it by a weak reference to the original."""

# moto's queue of SQS has one, of which a copy would share the lock.
copyreg.pickle(threading.Condition, lambda _: (threading.Condition, ()))


def taken() -> Backends:
    """A copy of what these services hold now."""
    return deepcopy({name: {account: dict(held) for account, held in get_backend(name).items()} for name in SERVICES})


def restore(backends: Backends) -> None:
    """Let the services hold that again."""
    for name, accounts in deepcopy(backends).items():
        for account, regions in accounts.items():
            get_backend(name)[account].update(regions)
