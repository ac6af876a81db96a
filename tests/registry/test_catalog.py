"""The catalog of components that other components are made of, here and in another process."""

import json
import multiprocessing
from types import SimpleNamespace

import pytest

from enginecore.catalog import LoadedCatalog, restore_catalog
from enginecore.errors import ConfigurationError, PluginError
from enginecore.plugin import Component, ComponentSettings, EmptyCatalog
from enginecore.settings import load_settings
from tests.registry import importable
from tests.registry.fake_plugins import ROUTER, ROUTER_KIND

CONTEXT = SimpleNamespace(num_engines=4)


def catalog_of(settings=None, components=()):
    return LoadedCatalog(load_settings(settings or {}, components=components, environ={}))


@pytest.fixture
def routers(site):
    site.install("acme-kinds", ROUTER_KIND.format(changes=""))
    site.install("acme-parts", ROUTER.format(name="last"))


@pytest.mark.usefixtures("routers")
def test_components_are_listed_and_built_with_the_settings_of_their_table():
    catalog = catalog_of({"router.last.start": 10})
    assert [component.name for component in catalog.components("router")] == ["last"]
    assert catalog.chosen("router") == "first"  # the kind's default, whether it is there or not
    assert catalog.get("router", "last").summary == "For tests."
    assert catalog.build("router", "last", CONTEXT).route("request") == 13
    given = catalog.get("router", "last").settings(start=0)
    assert catalog.build("router", "last", CONTEXT, given).route("request") == 3


@pytest.mark.usefixtures("routers")
def test_errors_are_those_of_the_registry():
    catalog = catalog_of()
    with pytest.raises(PluginError, match=r"no active plugin offers router 'lost'; did you mean last\?"):
        catalog.build("router", "lost", CONTEXT)
    with pytest.raises(PluginError, match=r"there is no kind of component 'rooter'; did you mean router\?"):
        catalog.get("rooter", "last")


def test_a_kind_without_a_table_is_built_with_the_defaults_of_its_component(site):
    site.install("acme-kinds", ROUTER_KIND.format(changes="table=None, default=None"))
    site.install("acme-parts", ROUTER.format(name="last"))

    class Needy(ComponentSettings):
        start: int

    needy = Component(kind="router", name="needy", factory=lambda settings, context: settings, settings=Needy)
    catalog = catalog_of(components=[needy])
    assert catalog.build("router", "last", CONTEXT).route("request") == 3
    with pytest.raises(ConfigurationError, match="router 'needy' requires settings"):
        catalog.build("router", "needy", CONTEXT)
    with pytest.raises(ConfigurationError, match="hold no table for router"):
        catalog.chosen("router")


def route(plain, queue):
    """Runs in the child."""
    catalog = restore_catalog(json.loads(plain))
    queue.put((catalog.chosen("router"), catalog.build("router", "last", CONTEXT).route("request")))


@pytest.mark.usefixtures("routers")
def test_a_worker_process_restores_it():
    local = Component(kind="scheduler", name="local", factory=importable.make)  # no affair of the worker's
    catalog = catalog_of({"router": {"use": "last", "last": {"start": 20}}, "seed": 3}, [local, importable.COMPONENT])
    with pytest.raises(PluginError, match="given as an object"):
        catalog.to_plain("router", "scheduler")
    plain = catalog.to_plain("router")
    assert plain["settings"] == {"router": {"use": "last", "last": {"start": 20}}}
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=route, args=(json.dumps(plain), queue))
    child.start()
    assert queue.get(timeout=60) == ("last", 23)
    child.join(60)
    assert child.exitcode == 0


def test_the_empty_catalog_has_nothing_and_stays_empty():
    catalog = EmptyCatalog()
    assert (catalog.components("model"), catalog.chosen("model")) == ((), None)
    with pytest.raises(PluginError, match="the catalog is empty, so it has no model 'llama'"):
        catalog.build("model", "llama", CONTEXT)
    assert isinstance(restore_catalog(catalog.to_plain("model")), EmptyCatalog)
