"""The planted bugs, by the package that they are planted in."""

from __future__ import annotations

from dataclasses import replace

from tests.mutants.catalogue import (
    batch,
    dynamodb,
    event_loop,
    exchange,
    handler,
    http,
    operations,
    packs,
    protocol,
    single_call,
    sqs,
    top_level,
    without_claims,
    worker,
    workflow,
    worlds,
)

_FILES = (
    protocol,
    exchange,
    handler,
    single_call,
    batch,
    event_loop,
    without_claims,
    sqs,
    http,
    top_level,
    workflow,
    worlds,
    worker,
    dynamodb,
    packs,
    operations,
)

MUTANTS = [replace(mutant, name=name) for file in _FILES for name, mutant in file.MUTANTS.items()]
