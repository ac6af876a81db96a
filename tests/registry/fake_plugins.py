"""Plugins that are installed for one test: a folder on the path with modules and `.dist-info` folders."""

import importlib
import sys
from pathlib import Path
from textwrap import dedent

SCHEDULER = """
from enginecore.plugin import Component, hookimpl


def make(settings, context):
    return None


@hookimpl
def enginecore_components():
    return [Component(kind="scheduler", name="{name}", factory=make, summary="For tests.")]
"""

TRANSPORT = SCHEDULER.replace('kind="scheduler"', 'kind="transport"')


class Site:
    """One folder of installed distributions."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def install(self, distribution, source, *, entry_point=None, version="1.0", group="enginecore.plugins.v1"):
        """Install a distribution with one plugin. Returns the name of its module."""
        module = distribution.replace("-", "_")
        (self.path / f"{module}.py").write_text(dedent(source))
        self.declare(distribution, {entry_point or distribution: module}, version=version, group=group)
        return module

    def declare(self, distribution, entry_points, *, version="1.0", group="enginecore.plugins.v1"):
        """Write only the metadata: what pip leaves of a distribution."""
        info = self.path / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        lines = [f"{name} = {module}" for name, module in entry_points.items()]
        (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines, ""]))
        importlib.invalidate_caches()
        return info

    def forget_modules(self):
        """Undo the imports of its modules."""
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None)).startswith(str(self.path)):
                del sys.modules[name]


def record_of(registry, distribution):
    [record] = [record for record in registry.plugins if record.distribution == distribution]
    return record


def names(registry, kind="scheduler"):
    return [component.name for component in registry.components(kind)]


ROUTER_KIND = """
from enginecore.plugin import KindSpec, hookimpl
from tests.registry.routers import Router, RouterContext

WORDS = dict(
    name="router",
    summary="Says which engine takes a request.",
    interface=Router,
    context=RouterContext,
    table="router",
    default="first",
    capabilities={{"sticky": "Keeps the requests of one session together."}},
)


@hookimpl
def enginecore_kinds():
    return [KindSpec(**(WORDS | dict({changes})))]
"""
"""A plugin that declares the kind `router`; `changes` are keyword arguments over those of its row."""

ROUTER = """
from enginecore.plugin import Component, ComponentSettings, hookimpl
from tests.registry.routers import Router


class {name}Settings(ComponentSettings):
    start: int = 0


class Last(Router):
    def __init__(self, engine):
        self.engine = engine

    def route(self, request_id):
        return self.engine


@hookimpl
def enginecore_components():
    def make(settings, context):
        return Last(settings.start + context.num_engines - 1)

    return [Component(kind="router", name="{name}", factory=make, settings={name}Settings, summary="For tests.")]
"""
"""A plugin that offers a component of that kind."""
