"""Nothing waits for itself, and nothing but a deployment group waits for what only watches.

CloudFormation refuses a circle when it is deployed. cfn-lint does not see one that SAM's transform closes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from harness.edits import edited
from tests.sam import cycle, dependencies, expanded
from tests.starter import made
from tests.template import TEMPLATE
from tests.unit.templates.test_component import with_second
from tests.unit.templates.variants import AT_ONCE, GRADUAL

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLE, STARTER = TEMPLATE.read_text(), made("plain")["template.yaml"]
WATCHED = "        FunctionName: !Ref Consumer\n"


def planted(given: str) -> str:
    """The example, gradually, with this given to what watches instead of the function's name."""
    text = edited(EXAMPLE, GRADUAL)
    assert WATCHED in text
    return text.replace(WATCHED, f"        FunctionName: {given}\n")


SOUND: dict[str, Callable[[], str]] = {
    "template.yaml": lambda: EXAMPLE,
    "edited": lambda: edited(EXAMPLE, "FIFO", AT_ONCE, "Senders", GRADUAL),
    "a starter": lambda: STARTER,
    "a starter, gradually": lambda: edited(STARTER, GRADUAL),
    "two consumers": lambda: with_second(edited(STARTER, GRADUAL)),
}
PLANTED: dict[str, Callable[[], str]] = {
    "the alias is given": lambda: planted("!Ref Consumer.Alias"),
    "the mapping is given": lambda: planted("!Ref ConsumerMessages"),
}
GROUP = "ConsumerDeploymentGroup"


@pytest.fixture(scope="module")
def resources() -> dict[str, dict[str, Any]]:
    """Those of each template."""
    texts = SOUND | PLANTED
    return dict(zip(texts, expanded(*(text() for text in texts.values()), Release="first"), strict=True))


@pytest.mark.parametrize("template", SOUND)
def test_there_is_no_circle_and_only_a_deployment_group_waits_for_what_watches(
    template: str, resources: dict[str, dict[str, Any]]
) -> None:
    depends = dependencies(resources[template])
    assert cycle(depends) == []
    waiting = {name for name, on in depends.items() if on & {"Watch", "RefundsWatch"}}
    assert waiting == ({GROUP} if GROUP in depends else set())
    assert "ConsumerMessages" in depends, "the mapping that SAM makes"


@pytest.mark.parametrize("template", PLANTED)
def test_a_circle_is_found_once_what_watches_knows_the_alias_or_the_mapping(
    template: str, resources: dict[str, dict[str, Any]]
) -> None:
    """The alias waits for its deployment group, by its UpdatePolicy, and the mapping waits for the alias."""
    found = resources[template]
    assert {"Watch", "ConsumerAliaslive", GROUP} <= {*cycle(dependencies(found))}
    without = {name: {**each, "UpdatePolicy": {}} for name, each in found.items()}
    assert cycle(dependencies(without)) == [], "which is all that cfn-lint looks at"
