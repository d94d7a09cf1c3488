"""Who runs where: a subject on one CPU of its own, as much as a function of 1,769 MB is given; all else on the others.

Python runs one thread at a time, and on several CPUs it hands that right about between them, at a price that depends on
what else runs there: what is measured would be the machine.
"""

from __future__ import annotations

import os
from typing import NamedTuple


class Cpus(NamedTuple):
    """The CPU that only subjects run on, and all that there are."""

    own: int
    every: tuple[int, ...]


def keep_off_the_subjects() -> Cpus | None:
    """Move this process, and what it will start, off the subjects' CPU. None where there is one only, or where no
    process can be kept to any (macOS).
    """
    if not hasattr(os, "sched_setaffinity"):
        return None
    every = tuple(sorted(os.sched_getaffinity(0)))
    *others, own = every
    if not others:
        return None
    os.sched_setaffinity(0, others)
    return Cpus(own, every)


def keep_to(cpus: list[int]) -> None:
    """Let this process and its threads run on these CPUs only."""
    os.sched_setaffinity(0, cpus)
