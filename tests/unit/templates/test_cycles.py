"""Nothing waits for itself, and nothing but a deployment group waits for what only watches.

CloudFormation refuses a circle when it is deployed. cfn-lint does not see one that SAM's transform closes.
"""

from __future__ import annotations

from typing import Any

import pytest

from harness.edits import edited
from tests.sam import cycle, dependencies, expanded
from tests.starter import made
from tests.template import TEMPLATE
from tests.unit.templates.test_component import with_second
from tests.unit.templates.variants import AT_ONCE, GRADUAL

EXAMPLE, STARTER = TEMPLATE.read_text(), made("plain")["template.yaml"]
SOUND = {
    "template.yaml": EXAMPLE,
    "edited": edited(EXAMPLE, "FIFO", AT_ONCE, "Senders", GRADUAL),
    "a starter": STARTER,
    "a starter, gradually": edited(STARTER, GRADUAL),
    "two consumers": with_second(edited(STARTER, GRADUAL)),
}
WATCHED = "        FunctionName: !Ref Consumer\n"
PLANTED = {
    f"{given} is given": edited(EXAMPLE, GRADUAL).replace(WATCHED, f"        FunctionName: {given}\n")
    for given in ("!Ref Consumer.Alias", "!Ref ConsumerMessages")
}
GROUP = "ConsumerDeploymentGroup"


@pytest.fixture(scope="module")
def resources() -> dict[str, dict[str, Any]]:
    """Those of each template."""
    texts = SOUND | PLANTED
    return dict(zip(texts, expanded(*texts.values(), Release="first"), strict=True))


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
    planted = resources[template]
    assert {"Watch", "ConsumerAliaslive", GROUP} <= {*cycle(dependencies(planted))}
    without = {name: {**each, "UpdatePolicy": {}} for name, each in planted.items()}
    assert cycle(dependencies(without)) == [], "which is all that cfn-lint looks at"
