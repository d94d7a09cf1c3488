"""The task of `receiver dlq resend`: the new body, the new key, and how the plan describes them."""

import re
import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from idempotent_receiver.operations.account import UsageError
from idempotent_receiver.operations.cli.deployment import Deployment
from idempotent_receiver.operations.cli.dlq_options import Acting, Task
from idempotent_receiver.operations.cli.terminal import Terminal, command, moment
from idempotent_receiver.operations.dead_letters.dead_letter import DeadLetter
from idempotent_receiver.operations.dead_letters.history import ActOutcome, Verb
from idempotent_receiver.operations.dead_letters.journal import key_of
from idempotent_receiver.operations.dead_letters.resend import (
    MOST_RECORD_BYTES,
    NotResent,
    PlannedResend,
    Resends,
)
from idempotent_receiver.operations.dead_letters.selection import Plan, SavedPlan, Selection, hash_of
from idempotent_receiver.operations.dead_letters.session import Session
from idempotent_receiver.operations.dead_letters.triage import Decision
from idempotent_receiver.operations.dead_letters.verbs import resend_dispositions
from idempotent_receiver.sqs.dead_letter import MOST_BYTES

UNSENDABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""SQS accepts the characters of XML 1.0. Source: Amazon SQS API Reference, SendMessage."""


def resends_of(
    session: Session, deployment: Deployment, terminal: Terminal, *, body: str | None = None, because: str | None = None
) -> Resends:
    """Resends this session's dead letters with another body; without one, only finishes resends that have begun."""
    return Resends(
        store=deployment.store,
        sqs=deployment.client("sqs"),
        clock=terminal.clock,
        reader=session.reader,
        queue_url=deployment.queue.url,
        retention_seconds=session.rules.retention_seconds,
        payload_known=session.rules.payload_known,
        operator="" if body is None else deployment.operator,
        why=because or "no reason was given",
        body=body,
    )


def resend_task(
    session: Session,
    deployment: Deployment,
    terminal: Terminal,
    *,
    body: Path | None,
    options: dict[str, bool],
    selection: Selection,
    acting: Acting,
    saved: SavedPlan | None,
) -> Task:
    """The command's task. Raises UsageError for a body that cannot be sent, or that differs from the saved plan's."""
    text = None if body is None else body_in(body)
    new_body_sha256 = None if text is None else hash_of(text)
    if saved is not None and saved.new_body_sha256 != new_body_sha256:
        raise UsageError(f"--plan {acting.plan} was made for a different body than {body}")
    resend = resends_of(session, deployment, terminal, body=text, because=acting.because)
    return Task(
        command="resend",
        asks="Send the new body and delete",
        doing="sending",
        dispositions=resend_dispositions(resend),
        acting=acting,
        selection=replace(selection, limit=1),
        options=options,
        new_body_sha256=new_body_sha256,
        saved=saved,
        check=_Check(resend, deployment, terminal),
    )


@dataclass(frozen=True)
class _Check:
    """Explains what a plan will do to its one dead letter."""

    resend: Resends
    deployment: Deployment
    terminal: Terminal

    def __call__(self, plan: Plan) -> dict[str, str]:
        """Extra values for the JSON output. Raises UsageError for a plan that cannot be carried out."""
        if len(plan.decisions) > 1:
            count = len(plan.decisions)
            raise UsageError(f"{count} dead letters match, but resend takes one: select it with --message-id")
        if not plan.acting:
            return {}
        (decision,) = plan.acting
        try:
            planned = self.resend.planned(decision)
        except NotResent as error:
            raise UsageError(str(error)) from None
        self._note(decision, planned)
        return {"new_key": planned.key}

    def _note(self, decision: Decision, planned: PlannedResend) -> None:
        if planned.begin is not None:
            self.terminal.note(
                f"Its record keeps the new body until SQS has confirmed it: {planned.record_bytes} bytes of at most "
                f"{MOST_RECORD_BYTES}."
            )
        if planned.copy is not None:
            _note_other_bodies(decision.dead_letter, planned.new_id, self.deployment, self.terminal)
        follow = command("receiver trace", shlex.quote(planned.key), *self.deployment.typed)
        self.terminal.note(f"The new key is {planned.key}. To follow the message after the send:\n{follow}")


def _note_other_bodies(letter: DeadLetter, new_id: str, deployment: Deployment, terminal: Terminal) -> None:
    """Warn if the history shows that a dead letter without a record was sent with another body."""
    if deployment.history_table is None:
        return
    acts = deployment.history(terminal).of_key(key_of(letter))
    sent = [
        each for each in acts if each.verb == Verb.RESENT and each.outcome != ActOutcome.REFUSED and not each.mirror
    ]
    if others := [each for each in sent if each.other != new_id]:
        last = others[-1]
        terminal.note(
            f"At {moment(last.at_ms)}, {last.operator} sent a dead letter with this key but another body "
            f"({last.became}). If it was this one, both bodies will run: send the same body again, or delete this one."
        )


def body_in(file: Path) -> str:
    """The body in a file. Raises UsageError if SQS would reject it."""
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"--body {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"--body {file} is not UTF-8 text, which SQS requires") from None
    if not text:
        raise UsageError(f"--body {file} is empty, and SQS rejects empty messages")
    if len(text.encode()) > MOST_BYTES:
        raise UsageError(f"--body {file} exceeds SQS's limit of 1 MiB")
    if refused := UNSENDABLE.search(text):
        line = text.count("\n", 0, refused.start()) + 1
        raise UsageError(f"--body {file} has the character U+{ord(refused[0]):04X} in line {line}, which SQS rejects")
    return text
