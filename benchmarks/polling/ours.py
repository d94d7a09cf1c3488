"""Our consumer, run by `receiver work`: the one that the other measurements call as Lambda would."""

from dataclasses import replace

from benchmarks.polling import HANDLER_SECONDS
from benchmarks.settings import PLAIN
from benchmarks.subjects import ours

lambda_handler = ours.build(replace(PLAIN, handler_seconds=HANDLER_SECONDS))
