"""A key made of one argument of a call, wherever the caller wrote it: Powertools' `data_keyword_argument`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter
from typing import Any

from idempotent_receiver.errors import MissingKey


@dataclass(frozen=True, slots=True)
class OneArgumentKey:
    """A key strategy: `make` makes the key of an event, a message, or one argument of a function.

    `data_keyword_argument` is the argument's name; None for the only one.
    """

    make: Callable[[Any], str]
    data_keyword_argument: str | None

    def __call__(self, given: Any, *_: object) -> str:
        """The key. Raises UnusableKey."""
        return self.make(given)

    def argument(self, parameters: Sequence[Parameter], function: str) -> str:
        """The name of the argument, among a function's parameters for data. Raises TypeError if it is not known."""
        wanted, names = self.data_keyword_argument, [each.name for each in parameters]
        if wanted is None and len(parameters) == 1 and parameters[0].kind not in _SEVERAL:
            return names[0]
        if wanted is not None and (wanted in names or _rest(parameters)):
            return wanted
        raise TypeError(
            f"{function}: the key is made of one argument. data_keyword_argument must be its name, one of "
            f"{names}; it is {wanted!r}"
        )

    def of_call(self, parameters: Sequence[Parameter], function: str, values: Mapping[str, Any]) -> str:
        """The key of a call with these arguments. Raises UnusableKey."""
        name = self.argument(parameters, function)
        defaults = {each.name: each.default for each in parameters if each.default is not each.empty}
        named: Mapping[str, Any] = next((values[rest] for rest in _rest(parameters) if rest in values), {})
        found = {**defaults, **named, **values}
        if name not in found:
            raise MissingKey(f"{function}: the call has no argument {name!r} to make the key of")
        return self.make(found[name])


_SEVERAL = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


def _rest(parameters: Sequence[Parameter]) -> list[str]:
    """The name of `**kwargs`, if there is one."""
    return [each.name for each in parameters if each.kind is Parameter.VAR_KEYWORD]
