"""A user's project: its template and code, built once and deployed to several local clouds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from idempotent_receiver.local import witness
from idempotent_receiver.local.build import build, build_by_make
from idempotent_receiver.local.cloud import ACCOUNT, REGION, Cloud
from idempotent_receiver.local.deployment import Stack, Target, create, packaged, template_of, upload
from idempotent_receiver.local.samples import TrialError
from idempotent_receiver.local.sqlite import give_database
from idempotent_receiver.local.template import queues_in

HANDLER = "receiver_local_witness"


@dataclass(frozen=True)
class LocalProject:
    """A template, the build folder, and the template's parameters."""

    template: Path
    folder: Path
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The template's text. Raises TrialError if the template does not exist or is not text."""
        if not self.template.is_file():
            raise TrialError(
                f"no template at {self.template}: pass its path, as in receiver local path/to/template.yaml"
            )
        try:
            return self.template.read_text()
        except ValueError as error:
            raise TrialError(f"{self.template} is not text: {error}") from None

    def consumers(self) -> list[str]:
        """The functions that consume a queue, as far as the template shows. Raises DeployError and TrialError."""
        return template_of(self.text).consumers

    def deployed(self, cloud: Cloud, stack: str, *, text: str | None = None, witnessed: bool = False) -> Stack:
        """Deploy the project to a cloud, from its template or from an edited `text`, optionally with the witness next
        to its code.

        Raises DeployError and TrialError.
        """
        overlay = {f"{HANDLER}.py": Path(witness.__file__).read_bytes()} if witnessed else {}

        def uri_of(path: Path) -> str:
            if path.is_file():
                return upload(cloud, path)
            return upload(cloud, build(path, self.folder, self.template.parent), overlay)

        def made(target: Target) -> str:
            return upload(cloud, build_by_make(target, self.folder), overlay)

        def here(text: str) -> str:
            return queues_in(text, ACCOUNT, REGION)

        made_stack = create(
            cloud,
            stack,
            packaged(cloud, here(self.text if text is None else text), self.template.parent, uri_of, made),
            {name: here(value) for name, value in self.parameters.items()},
        )
        give_database(cloud, stack, self.folder)
        return made_stack
