"""On the local cloud, a project's database is an SQLite file, and what is in it is compared as tables are."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from sqlalchemy import create_engine

from idempotent_receiver.local import sqlite, witness
from idempotent_receiver.local.consumers import QueueConsumer
from idempotent_receiver.local.deployment import Stack
from idempotent_receiver.local.trial import Trial
from idempotent_receiver.sql import SQLStore

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

CONSUMER = QueueConsumer(name="Consumer", function="f", queue_url="q", mapping="m", partial=True)


def database(folder: Path) -> str:
    path = str(folder / "database")
    with closing(sqlite3.connect(path)) as at:
        at.executescript("""
            CREATE TABLE totals (customer TEXT PRIMARY KEY, cents INTEGER, rate REAL, photo BLOB, note TEXT);
            INSERT INTO totals VALUES ('alice', 5, 0.5, x'00ff', NULL);
            CREATE TABLE "order" (id INTEGER PRIMARY KEY AUTOINCREMENT, text TEXT);
            INSERT INTO "order" (text) VALUES ('one');
            CREATE TABLE records (id TEXT PRIMARY KEY, status TEXT);
            INSERT INTO records VALUES ('m-1', 'COMPLETED');
        """)
    return path


def test_its_rows_are_items_without_the_records(tmp_path: Path) -> None:
    found = sqlite.tables_in(database(tmp_path), apart={"records"})
    assert found["totals"].key == ("customer",)
    (alice,) = found["totals"].items
    assert alice == {
        "customer": {"S": "alice"},
        "cents": {"N": "5"},
        "rate": {"N": "0.5"},
        "photo": {"B": b"\x00\xff"},
        "note": {"NULL": True},
    }
    assert found["order"].items == [{"id": {"N": "1"}, "text": {"S": "one"}}]
    assert {*found} == {"totals", "order"}


def test_a_trial_reads_the_database_that_its_consumer_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = {"file": database(tmp_path), "table": "records"}
    notes = [
        {"what": "consumer", "table": None, "database": named, "claims": True},
        {"what": "started", "key": "m-1", "record": "m-1", "idempotency_key": None},
    ]
    (tmp_path / "log.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in notes))
    trial = Trial(SimpleNamespace(), Stack("trial", {}, {}), [CONSUMER], CONSUMER, tmp_path, witness.NONE)  # type: ignore[arg-type]
    monkeypatch.setattr("idempotent_receiver.local.trial.StackContent.read", lambda self, **_: {"Bucket": ()})
    monkeypatch.setattr(Trial, "redrive_policy", {})
    monkeypatch.setattr(Trial, "left", lambda self: 0)
    evidence = trial.evidence()
    assert {*evidence.tables} == {"Bucket", "totals", "order"}
    assert evidence.records == {"m-1": {"id": "m-1", "status": "COMPLETED"}}
    assert evidence.recorded


def test_the_witness_names_a_consumers_sqlite_database_and_no_other(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/database")
    told = witness._database(SQLStore(engine))
    assert told == {"file": f"{tmp_path}/database", "table": "idempotent_receiver"}
    postgres = SQLStore(create_engine("postgresql+psycopg://localhost/orders"))
    assert [witness._database(each) for each in (postgres, object())] == [None, None]


class Secrets:
    """Secrets by name."""

    def __init__(self, **values: str) -> None:
        self.values = values

    def client(self, service: str) -> Secrets:
        return self

    def get_secret_value(self, *, SecretId: str) -> dict[str, Any]:  # noqa: N803
        return {"SecretString": self.values[SecretId]}

    def put_secret_value(self, *, SecretId: str, SecretString: str) -> None:  # noqa: N803
        self.values[SecretId] = SecretString


def test_a_secret_without_a_value_gets_the_url_of_a_new_database_and_no_other_secret_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud: Any = Secrets(url="", other="kept")
    kinds = {"url": "AWS::SecretsManager::Secret", "other": "AWS::SecretsManager::Secret", "queue": "AWS::SQS::Queue"}
    made = [{"PhysicalResourceId": name, "ResourceType": kind} for name, kind in kinds.items()]
    monkeypatch.setattr(sqlite, "resources_of", lambda cloud, stack: made)
    sqlite.give_database(cloud, "trial", tmp_path)
    made_here = [f"sqlite:///{folder}/database" for folder in tmp_path.iterdir()]
    assert ([cloud.values["url"]], cloud.values["other"]) == (made_here, "kept")
