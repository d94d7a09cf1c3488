"""The CPUs: one for the measured subject, as much as Lambda gives a function of 1,769 MB, and the others for the rest.

Python runs one thread at a time. On several CPUs its threads hand over the interpreter between CPUs, at a cost that
depends on the machine's other load.
"""

from __future__ import annotations

import os
from typing import NamedTuple


class Cpus(NamedTuple):
    """The CPU on which only subjects run, and all CPUs."""

    own: int
    every: tuple[int, ...]


def keep_off_the_subjects() -> Cpus | None:
    """Keep this process and its future children off the subjects' CPU. None if there is only one CPU, or if the system
    cannot pin processes (macOS).
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
    """Restrict this process and its threads to these CPUs."""
    os.sched_setaffinity(0, cpus)
