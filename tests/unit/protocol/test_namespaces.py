"""One namespace, one function: which functions may share a table, and how each gets a namespace of its own."""

from __future__ import annotations

import gc
import weakref
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from moto import mock_aws

from idempotent_receiver import DynamoDBStore, MemoryStore, body_field, http_endpoint, idempotent, sqs_consumer
from idempotent_receiver.workflow import Workflow
from tests.contexts import Context
from tests.fake_step_functions import FakeStepFunctions
from tests.manual_clock import ManualClock
from tests.simulation.world import sqs_record
from tests.unit.http.api import request

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Store = MemoryStore | DynamoDBStore


@pytest.fixture(params=["memory", "dynamodb"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """A store with the namespace `orders`, of an unused table."""
    if request.param == "memory":
        yield MemoryStore("orders")
        return
    with mock_aws():
        client = _client()
        name = f"records-{abs(hash(request.node.name))}"
        client.create_table(
            TableName=name,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        )
        yield DynamoDBStore(name, "orders", client)
        client.close()


def _client() -> Any:
    return boto3.client("dynamodb", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")


def by_id(order: dict[str, Any]) -> str:
    return str(order["id"])


def charge_card(order: dict[str, Any]) -> str:
    return "charged"


def reserve_stock(order: dict[str, Any]) -> str:
    return "reserved"


once = partial(idempotent, key=by_id, lease_seconds=60)


def refused(store: Any, function: Any, told: str = "one namespace, one function", decorate: Any = once) -> str:
    """What is said to the function that would take another's namespace."""
    with pytest.raises(ValueError, match=told) as caught:
        decorate(store)(function)
    return str(caught.value)


def test_two_functions_of_one_namespace_are_refused_at_set_up_by_name_and_with_the_remedy(store: Store) -> None:
    """Otherwise one would return the other's result and do nothing."""
    once(store)(charge_card)
    said = refused(store, reserve_stock)
    for told in (f"{__name__}.charge_card", f"{__name__}.reserve_stock", "'orders'", 'store.named("reserve_stock")'):
        assert told in said


def test_two_functions_of_one_table_each_take_effect_in_namespaces_of_their_own(store: Store) -> None:
    charge, reserve = once(store.named("charge"))(charge_card), once(store.named("stock"))(reserve_stock)
    order = {"id": "o-1"}
    assert [charge(order), reserve(order), charge(order), reserve(order)] == ["charged", "reserved"] * 2


def test_a_consumer_that_calls_a_step_under_its_own_key_and_namespace_is_refused_at_set_up(store: Store) -> None:
    """The step would meet the consumer's claim, and never run."""
    step = once(store)(charge_card)

    def take(order: dict) -> str:  # type: ignore[type-arg]
        return step(order)

    refused(store, take, decorate=partial(sqs_consumer, key=body_field("id")))


def test_a_consumer_and_its_step_complete_in_namespaces_of_their_own(store: Store) -> None:
    step = once(store.named("charge"))(charge_card)
    charged = []

    @sqs_consumer(store, key=body_field("id"))
    def take(order: dict) -> None:  # type: ignore[type-arg]
        charged.append(step(order))

    event = {"Records": [sqs_record("m-1", '{"id": "o-1"}')]}
    assert take(event, Context(ManualClock())) == {"batchItemFailures": []}
    assert charged == ["charged"]
    assert [each.status for each in store.read(["orders#o-1", "orders.charge#o-1"]) if each] == ["COMPLETED"] * 2  # type: ignore[union-attr]


def test_one_function_under_two_decorators_counts_as_two(store: Store) -> None:
    """If they are stacked, the inner one would meet the outer one's claim."""
    inner = once(store)(charge_card)
    refused(store, inner, r"charge_card \(sqs_consumer\)", partial(sqs_consumer, key=body_field("id")))


def test_every_way_in_takes_its_namespace(store: Store) -> None:
    once(store)(charge_card)

    def handler(event: Any, context: Any) -> dict[str, int]:
        return {"statusCode": 200}

    refused(store, handler, r"handler \(http_endpoint\)", http_endpoint)
    arn = "arn:aws:states:us-east-1:123456789012:stateMachine:transfer"
    options: Any = {"client": FakeStepFunctions(), "state_machine_arn": arn, "timeout_seconds": 60}
    with pytest.raises(ValueError, match="stateMachine:transfer"):
        Workflow(store, **options)
    for _ in range(2):
        Workflow(store.named("transfer"), **options)
    assert http_endpoint(store.named("http"))(handler)(request("k"), Context(ManualClock()))["statusCode"] == 200


def made_anew() -> Any:
    """A new definition of a function for each call, as by a factory or a reloaded module."""

    def work(order: dict[str, Any]) -> str:
        return "worked"

    return work


def test_the_same_function_decorated_again_is_the_same_function(store: Store) -> None:
    """A reload, a test that decorates `__wrapped__` anew, a factory that is called again, a partial of it."""
    first = once(store)(made_anew())
    for again in (made_anew(), first.__wrapped__, partial(made_anew())):
        once(store)(again)
    made_of = ("orders",) if isinstance(store, MemoryStore) else (store.table_name, "orders", store.client)
    once(type(store)(*made_of))(made_anew())


def loaded(path: Path, name: str) -> Any:
    """Load that file as a module of that name, as a test of a Lambda handler does."""
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_file_that_is_loaded_under_another_name_has_the_same_functions(store: Store, tmp_path: Path) -> None:
    """A test may load a handler by its path; a program may also be imported."""
    source = "def work(order): return 'worked'\n\nother = lambda order: 'other'\n"
    (tmp_path / "app.py").write_text(source)
    (tmp_path / "copy.py").write_text(source)
    first, again = loaded(tmp_path / "app.py", "app"), loaded(tmp_path / "app.py", "src.app")

    once(store)(first.work)
    once(store)(again.work)
    refused(store, again.other, r"src\.app\.<lambda>")
    refused(store, loaded(tmp_path / "copy.py", "copy").work, r"copy\.work")


def test_another_object_for_the_same_dynamodb_table_is_the_same_table() -> None:
    once(DynamoDBStore("one-table", "orders"))(charge_card)
    refused(DynamoDBStore("one-table", "orders"), reserve_stock, "reserve_stock")
    once(DynamoDBStore("another-table", "orders"))(reserve_stock)
    once(DynamoDBStore("one-table", "stock"))(reserve_stock)
    refused(DynamoDBStore("one-table").named("stock"), charge_card, "charge_card")


def test_each_table_in_memory_is_its_own_also_where_another_was() -> None:
    """Python gives the place of one that is gone to the next."""
    for function in (charge_card, reserve_stock) * 20:
        once(MemoryStore("orders"))(function)


def test_two_lambdas_are_two_functions() -> None:
    """They have the same name, and are told apart by their lines."""
    store = MemoryStore("orders")
    once(store)(lambda order: "one")
    refused(store, lambda order: "another", "<lambda>")
    once(store.named("deep"))(once(store.named("inner"))(lambda order: "one"))
    refused(store.named("deep"), once(store.named("inmost"))(lambda order: "another"), "<lambda>")


class Charger:
    """A callable without a name of its own."""

    def __call__(self, order: dict[str, Any]) -> str:
        return "charged"


def test_a_callable_object_goes_by_its_class() -> None:
    store = MemoryStore("orders")
    once(store)(Charger())
    once(store)(Charger())
    refused(store, charge_card, "Charger")


class Refunder(Charger):
    """Another, which has no source of its own either."""


def test_callable_objects_of_two_classes_are_two_functions() -> None:
    store = MemoryStore("orders")
    once(store)(Charger())
    with pytest.raises(ValueError, match="Charger"):
        once(store)(Refunder())


def test_what_could_not_be_set_up_takes_no_namespace(store: Store) -> None:
    def broken(order: dict[str, Any]) -> Any:
        yield order

    with pytest.raises(TypeError, match="generator"):
        once(store)(broken)
    once(store)(charge_card)


def test_a_store_without_a_namespace_serves_several_consumers() -> None:
    """Their keys are messageIds."""
    store = MemoryStore()
    sqs_consumer(store)(charge_card)
    sqs_consumer(store)(reserve_stock)


class Custom:
    """A custom store with only what a `RecordStore` requires; it is not hashable."""

    __slots__ = ("insert", "namespace", "read", "replace")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, namespace: str | None) -> None:
        table, self.namespace = MemoryStore(), namespace
        self.insert, self.read, self.replace = table.insert, table.read, table.replace


def test_a_store_of_ones_own_needs_nothing_more() -> None:
    """It is identified by itself; the remedy is another instance."""
    store = Custom("orders")
    charge = once(store)(charge_card)  # type: ignore[arg-type]
    assert charge({"id": "1"}) == charge({"id": "1"}) == "charged"
    refused(store, reserve_stock, "a store with a namespace of its own")
    once(Custom("orders"))(reserve_stock)  # type: ignore[arg-type]


def test_a_store_in_memory_is_not_kept_alive_by_its_namespaces() -> None:
    """Tests create thousands of them."""
    store = MemoryStore("orders")
    once(store)(charge_card)
    gone = weakref.ref(store)
    del store
    gc.collect()
    assert gone() is None


# Named stores.


def test_a_named_store_is_the_same_table_under_a_namespace_of_its_own(store: Store) -> None:
    named = store.named("charge")
    assert (named.namespace, named.named("refund").namespace) == ("orders.charge", "orders.charge.refund")
    assert store.namespace == "orders"
    once(named)(charge_card)({"id": "1"})
    assert store.read(["orders.charge#1"]) == named.read(["orders.charge#1"]) != [None]
    refused(store.named("charge"), reserve_stock, "reserve_stock")


@pytest.mark.parametrize("store", [MemoryStore(), DynamoDBStore("records")])
def test_a_store_without_a_namespace_gives_the_name_alone(store: Store) -> None:
    assert store.named("charge").namespace == "charge"


def test_a_named_store_in_memory_has_the_same_items_and_tables() -> None:
    store = MemoryStore("orders", tables={"Accounts": "id"})
    named = store.named("charge")
    assert (named.items is store.items, named.tables is store.tables) == (True, True)


def test_named_stores_share_one_client_that_is_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever is used first."""
    built: list[object] = []
    monkeypatch.setattr("idempotent_receiver.dynamodb.store.default_client", lambda: built.append(1) or _client())
    store = DynamoDBStore("records", "orders")
    charge, refund = store.named("charge"), store.named("refund")
    assert charge.client is store.client is refund.client is refund.named("again").client
    assert built == [1]
    store.client.close()


@pytest.mark.parametrize(
    ("name", "error"),
    [("", ValueError), ("a#b", ValueError), (None, TypeError), (7, TypeError), ("\ud800", ValueError)],
)
def test_a_name_must_be_a_valid_namespace(store: Store, name: Any, error: type[Exception]) -> None:
    """None comes from a variable that is not set."""
    with pytest.raises(error, match="name"):
        store.named(name)
