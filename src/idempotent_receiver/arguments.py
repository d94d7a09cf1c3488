"""The arguments of a call as a payload: the part that two calls must share to count as one.

If only the first required argument is given, it is the payload itself; several arguments form an object, by name. An
argument equal to its default counts as not given. A call with a value that has no JSON form is refused unless `without`
names the value, because ignoring it could merge two calls.
"""

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

from idempotent_receiver.classes import Argument, argument_of
from idempotent_receiver.errors import UnusableKey
from idempotent_receiver.handler.annotations import hints_of
from idempotent_receiver.json_form import odd_in
from idempotent_receiver.one_argument import OneArgumentKey
from idempotent_receiver.payload import EVERYTHING, Document, Payload
from idempotent_receiver.unions import indistinguishable_in


@dataclass(frozen=True, slots=True)
class Given:
    """A call's arguments by name, and the `names` of all parameters that can count."""

    arguments: Mapping[str, Argument]
    names: Collection[str]

    def without(self, *names: str) -> "Given":
        """A copy without these arguments; `names` stays the same."""
        return replace(self, arguments={name: each for name, each in self.arguments.items() if name not in names})


class Arguments:
    """Which of a function's arguments count, and how. `signature` is the signature that callers see."""

    def __init__(self, function: Callable[..., Any], name: str, signature: inspect.Signature) -> None:
        self._name, self._parameters = name, signature.parameters
        hints = hints_of(function, name, needed=lambda parameter: False)  # without one, the class counts
        self._hints = {name: _whole_hint(each, hints.get(name)) for name, each in self._parameters.items()}
        several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        with_default = {name for name, each in self._parameters.items() if each.default is not each.empty}
        self._required = {name for name, each in self._parameters.items() if each.kind not in several} - with_default
        first = next(iter(self._parameters), None)
        owner = getattr(function, "__qualname__", "").rpartition(".")[0]
        is_within_class = owner != "" and not owner.endswith("<locals>")
        # A plain function's `cls` may be a travel class.
        self._object = first if first == "self" or (first == "cls" and is_within_class) else None
        apart = [self._object, *(name for name, hint in self._hints.items() if _may_be_context(name, hint))]
        self._data = [each for name, each in self._parameters.items() if name not in apart]
        self._is_method = self._object is not None and is_within_class

    def check(self, key: object, payload: Payload | None) -> None:
        """Raise TypeError or ValueError for a key or payload that does not fit this function."""
        if isinstance(key, OneArgumentKey):
            key.argument(self._data, self._name)
        elif not isinstance(key, Payload):
            self._require_taken(cast(Callable[..., Any], key))
        if self._is_method and isinstance(key, Payload):
            self._require_object_left_out(key)
        inspected = [each for each in (key, payload) if isinstance(each, Payload)]
        if inspected:
            self._require_distinct_members(inspected)
        counting = self._parameters.keys() - {self._object}
        for each in inspected:
            if counting and counting <= set(each.without):
                raise ValueError(
                    f"`without` lists every argument of {self._name}, so all calls would be the same; to exclude one "
                    "field, give its path, such as 'order.sent_at'"
                )

    def given(self, values: Mapping[str, Any]) -> Given:
        """The arguments of a call, without the Lambda context."""
        # Read before the function runs, because it may mutate a default.
        defaults = self._defaults
        contexts = [name for name, value in values.items() if is_context(value)]
        counting = {name: self._counting(name, value) for name, value in values.items() if name not in contexts}
        arguments = {name: argument_of(value, name, self._hints[name]) for name, value in counting.items()}
        names = [name for name in self._parameters if name not in contexts]
        # An argument that is the default object itself counts as not given, even if it has no JSON form.
        same = [name for name in arguments.keys() & defaults.keys() if values[name] is self._parameters[name].default]
        return Given(arguments, names).without(*(name for name in same if _has_odd(arguments[name])))

    def _counting(self, name: str, value: Any) -> Any:
        """The argument; for `*args`, without the Lambda context, which ends up there if a decorator hides the handler's
        parameter names.
        """
        several = self._parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
        return tuple(each for each in value if not is_context(each)) if several else value

    def key(self, given: Given, key: Payload) -> str:
        """The key made from a call. Raises UnusableKey."""
        self._require_object_left_out(key)
        return self._fingerprint(given, key, "payload_key")

    def key_of_one(self, values: Mapping[str, Any], key: OneArgumentKey) -> str:
        """The key made from one argument of a call. Raises UnusableKey."""
        return key.of_call(self._data, self._name, values)

    def fingerprint(self, given: Given, payload: Payload, key: object) -> str:
        """The fingerprint of a call under its key. It leaves out `self` or `cls`, and those values without a JSON form
        that a payload key leaves out. Raises UnusableKey.
        """
        if self._object is not None:
            given = replace(given.without(self._object), names=[name for name in given.names if name != self._object])
        if isinstance(key, Payload) and key.without:
            odd = [each.path for argument in given.arguments.values() for each in odd_in(argument.document.value)]
            excused = [path for path in key.without if any(self._reaches(path, each) for each in odd)]
            payload = replace(payload, without=(*payload.without, *excused)) if excused else payload
        return self._fingerprint(given, payload, "payload=Payload")

    def _fingerprint(self, given: Given, payload: Payload, option: str) -> str:
        # A required argument with a JSON form stays here, although the payload leaves it out later: recorded keys
        # depend on this.
        named = [name for name in given.arguments if name in payload.without]
        given = given.without(*(n for n in named if n not in self._required or _has_odd(given.arguments[n])))
        given = replace(given, names=[name for name in given.names if name not in payload.without])
        payload, argument = self._whole(given, payload) if payload.fields is None else self._selected(given, payload)
        document = argument.document
        for odd in odd_in(payload.part(document) if document.is_json else document.value):
            what = f"argument {odd.path!r}" if odd.path in self._parameters else f"{odd.path!r} among the arguments"
            raise UnusableKey(
                f"{self._name}: {what} (a {odd.kind}) has no JSON form, so it cannot distinguish two calls. "
                f'Leave it out with {option}(without=["{odd.path}"]), or make it data, such as a dataclass'
            )
        return argument.fingerprint(payload)

    def _whole(self, given: Given, payload: Payload) -> tuple[Payload, Argument]:
        """All arguments that differ from their defaults, as one unambiguous document, and the payload to apply."""
        given = given.without(
            *(name for name, each in given.arguments.items() if self._is_default(name, each, payload))
        )
        lead = self._lead(given)
        if given.arguments.keys() != {lead}:
            return payload, _joined(given.arguments)
        alone, argument = self._alone(lead, payload), given.arguments[lead]
        part = alone.part(argument.document) if argument.document.is_json else None
        if self._reads_like_several(part, lead, given.names):
            return EVERYTHING, _joined({lead: argument.part(alone)})
        return alone, argument

    def _selected(self, given: Given, payload: Payload) -> tuple[Payload, Argument]:
        """The document that has the `fields`: the arguments as given or, failing that, all by name, with defaults."""
        arguments, lead = given.arguments, self._lead(given)
        alone = arguments.keys() == {lead}
        found = (self._alone(lead, payload), arguments[lead]) if alone else (payload, _joined(arguments))
        try:
            found[0].part(found[1].document)
        except UnusableKey:
            defaults = {name: each for name, each in self._defaults.items() if name in given.names}
            return payload, _joined({**defaults, **arguments})
        return found

    def _lead(self, given: Given) -> str:
        """The argument that is the payload when given alone: always the same one, or different calls could merge."""
        required = [name for name in given.names if name in self._required]
        return next(iter([*required, *given.names]), "")

    def _alone(self, lead: str, payload: Payload) -> Payload:
        """The payload for `lead` alone: it leaves out paths that begin with its name or with no argument's name."""
        fields = [path for path in payload.without if path.partition(".")[0] not in self._parameters]
        return replace(payload, without=(*_within(lead, payload), *fields))

    def _reads_like_several(self, part: object, lead: str, names: Collection[str]) -> bool:
        """Whether several arguments could form this document, or the document nested in it under the name `lead`."""
        if not isinstance(part, dict) or not self._required & set(names) <= part.keys() <= set(names):
            return False
        return part.keys() != {lead} or self._reads_like_several(part[lead], lead, names)

    def _is_default(self, name: str, argument: Argument, payload: Payload) -> bool:
        """Whether an argument's fingerprint equals its default's. `==` would not do: True equals 1, arrays raise."""
        default, counting = self._defaults.get(name), Payload(without=_within(name, payload))
        if default is None or any(_is_odd(each, counting) for each in (default, argument)):
            return False
        return default.fingerprint(counting) == argument.fingerprint(counting)

    def _require_taken(self, key: Callable[..., Any]) -> None:
        """Raise TypeError if the key cannot be called with the arguments that every call has."""
        required = [each for name, each in self._parameters.items() if name in self._required]
        named = {each.name: None for each in required if each.kind is each.KEYWORD_ONLY}
        try:
            signature = inspect.signature(key)
        except ValueError:  # a built-in without a signature
            return
        try:
            signature.bind_partial(*required[: len(required) - len(named)], **named)
        except TypeError as error:
            names = ", ".join(each.name for each in required)
            text = (
                f"{self._name}: key is called with all of the function's arguments ({names}) but refuses them: {error}"
            )
            raise TypeError(f"{text}. Let it accept the rest with *_ and **_") from None

    def _require_distinct_members(self, inspected: Sequence[Payload]) -> None:
        """Raise TypeError for a parameter that takes several classes of the same JSON."""
        for name, hint in self._hints.items():
            for path, one, other in indistinguishable_in(hint, name, "serialization"):
                if not all(any(self._reaches(each, path) for each in payload.without) for payload in inspected):
                    raise TypeError(
                        f"{self._name}: {name!r} takes {one} and {other}, whose JSON looks the same. Add a "
                        "discriminator, such as a field `kind` that is a Literal of another value in each"
                    )

    def _reaches(self, path: str, other: str) -> bool:
        """Whether leaving out `path` also leaves out `other`, which begins with an argument's name."""
        within = other if path.partition(".")[0] in self._parameters else other.partition(".")[2]
        return f"{within}.".startswith(f"{path}.")

    def _require_object_left_out(self, key: Payload) -> None:
        if self._object is not None and self._object not in key.without:
            raise UnusableKey(
                f"{self._name}: a payload key cannot include {self._object!r}, the object of a method. Leave "
                f'it out: payload_key(without=["{self._object}"]). Equal calls on two objects then count as one, so '
                "pass whatever distinguishes the objects, such as a tenant, as an argument"
            )

    @cached_property
    def _defaults(self) -> Mapping[str, Argument]:
        given = {name: each.default for name, each in self._parameters.items() if each.default is not each.empty}
        return {name: argument_of(value, name, self._hints[name]) for name, value in given.items()}


def is_context(argument: object) -> bool:
    """Whether `argument` is a Lambda context or a stand-in. A mock has every attribute, so the method must also return
    a number.
    """
    left = getattr(argument, "get_remaining_time_in_millis", None)
    return callable(left) and not inspect.iscoroutinefunction(left) and isinstance(left(), int | float)


def _may_be_context(name: str, hint: Any) -> bool:
    """Whether a parameter is for the Lambda context, by its name or annotation."""
    return name.strip("_") in ("context", "lambda_context") or hasattr(hint, "get_remaining_time_in_millis")


def _whole_hint(parameter: inspect.Parameter, hint: Any) -> Any:
    """The annotation of a parameter's value: for `*args` and `**kwargs`, it is each one's."""
    if hint is None:  # it may be only in a `__signature__`
        hint = Any if parameter.annotation is parameter.empty else parameter.annotation
    match parameter.kind:
        case inspect.Parameter.VAR_POSITIONAL:
            return tuple[hint, ...]
        case inspect.Parameter.VAR_KEYWORD:
            return dict[str, hint]
    return hint


def _has_odd(argument: Argument) -> bool:
    return any(odd_in(argument.document.value))


def _is_odd(argument: Argument, payload: Payload) -> bool:
    return argument.document.is_json and any(odd_in(payload.part(argument.document)))


def _joined(arguments: Mapping[str, Argument]) -> Argument:
    """One object that contains the arguments by name."""
    ordered = sorted(arguments.items())
    raw = b",".join(f'"{name}":'.encode() + each.document.raw for name, each in ordered)
    value = {name: each.document.value for name, each in ordered}
    document = Document(b"{" + raw + b"}", value, is_json=all(each.document.is_json for _, each in ordered))
    return Argument(document, [one for name, each in ordered for one in each.within(name)])


def _within(name: str, payload: Payload) -> list[str]:
    """The payload's paths within an argument, relative to it."""
    return [path.removeprefix(f"{name}.") for path in payload.without if path.startswith(f"{name}.")]
