"""Recognises Lambda's durable functions without importing their SDK, to refuse them.

A durable function is suspended by an exception, and later run again from its start; only its steps are remembered. This
library would record the suspension as the function's failure or, around the SDK's decorator, as its result.
Source: https://docs.aws.amazon.com/lambda/latest/dg/durable-functions.html
"""

from collections.abc import Callable
from typing import Any, get_args

_SDK = "aws_durable_execution_sdk_python"


def durable_refusal(name: str) -> TypeError:
    """The error for a durable function, with the remedy."""
    return TypeError(
        f"{name}: a durable function is suspended by an exception and run again from its start, so that one call of it "
        "has no outcome to record. Call an idempotent function inside a step, context.step(lambda _: charge(order)): "
        "then it takes effect once for each key, whichever step or execution calls it"
    )


def is_durable_context(value: object) -> bool:
    """Whether `value` is a context that the SDK gives to durable functions."""
    return _is_context_class(type(value))


def takes_durable_context(hint: Any) -> bool:
    """Whether an annotation is such a context's class, alone or within a union."""
    return (isinstance(hint, type) and _is_context_class(hint)) or any(map(takes_durable_context, get_args(hint)))


def is_durable_function(function: Callable[..., Any]) -> bool:
    """Whether one of the SDK's decorators has made this function."""
    # The decorators copy the name and the module of what they wrap.
    return _is_of_sdk(getattr(function, "__globals__", {}).get("__name__"))


def _is_context_class(kind: type) -> bool:
    return any(each.__name__ == "DurableContext" and _is_of_sdk(each.__module__) for each in kind.__mro__)


def _is_of_sdk(module: object) -> bool:
    return isinstance(module, str) and module.partition(".")[0] == _SDK
