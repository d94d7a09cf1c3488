"""Loads a decorated handler from the current folder by a path such as `orders:handler`."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from idempotent_receiver.sqs.consumer import Consumer
from idempotent_receiver.sqs.handlers import consumer_inside, remedy


def loaded(path: str) -> Consumer:
    """The consumer in the handler at `module:name`, without outer Lambda decorators such as Powertools'
    `inject_lambda_context`. Raises ValueError or TypeError, with the remedy, if there is none.
    """
    module, _, name = path.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = getattr(_imported(path, module), name)
    except (ModuleNotFoundError, AttributeError) as error:
        raise ValueError(f"there is no handler {path!r}: {error}; name it as module:function") from error
    if (consumer := consumer_inside(found)) is None:
        raise TypeError(f"{path!r} is not decorated with @sqs_consumer: {remedy(found, [sys.modules[module]])}")
    return consumer


def _imported(path: str, module: str) -> Any:
    try:
        return import_module(module or ".")
    except (Exception, SystemExit) as error:  # a module may raise anything on import
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            raise  # this module is missing, not one that it imports
        raise ValueError(f"the module in {path!r} cannot be imported: {type(error).__name__}: {error}") from error
