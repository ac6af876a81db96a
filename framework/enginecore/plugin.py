"""The interface of plugins: hooks, the records that they return, and contexts of factories.

A plugin is a module named by an entry point in the group `enginecore.plugins.v1`. It counts as a
whole or not at all: all that it offers, or nothing.

    from enginecore.plugin import Component, hookimpl

    @hookimpl
    def enginecore_components():
        return [Component(kind="scheduler", name="mine", factory=make, settings=MySettings)]
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import pluggy
from pydantic import BaseModel, ConfigDict

from enginecore.clock import Clock
from enginecore.errors import PluginError
from enginecore.interfaces import (
    EngineCoreApi,
    EvictionOrder,
    ExecutorCapabilities,
    KVCacheConfig,
    KVCacheManager,
    RequestRecord,
    StepRecord,
    VictimChoice,
)

PLUGIN_API = 1
"""Version of this interface. A breaking change is a new number and a new entry-point group."""

ENTRY_POINT_GROUP = f"enginecore.plugins.v{PLUGIN_API}"

hookspec = pluggy.HookspecMarker("enginecore")
hookimpl = pluggy.HookimplMarker("enginecore")


class ComponentSettings(BaseModel):
    """Base of a component's own settings: frozen, and an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True, kw_only=True)
class KindSpec:
    """One kind of component. Those of the engine are in `enginecore.kinds`.

    Attributes:
        name: Lower-case words joined by `_`. `Component.kind` is this name.
        summary: One line for `enginecore plugins`.
        interface: The class that a built component must be an instance of.
        context: The class of what factories get beside their settings; None: the kind's owner
            decides.
        table: Settings table whose key `use` names the component that runs. None: the engine's
            settings have no table, since the kind's owner reads files of its own.
        default: Component that runs when the settings name none; None: none runs.
        capabilities: Words that components of this kind may declare, and what each one means.
        part_of: Kind whose component uses one of this kind, if it declares this kind's name as a
            capability. Beside a component that does not, a choice of this kind is refused. None:
            the kind stands by itself.
        kit: "module" or "module:NAME" of the conformance kit, `KIT` if no name is given. None:
            there is none.
        opens_network: Whether components open a network surface. A plugin that offers one runs only
            if `plugins.allow` names it.
    """

    name: str
    summary: str
    interface: type
    context: type | None = None
    table: str | None = None
    default: str | None = None
    capabilities: Mapping[str, str] = field(default_factory=dict)
    part_of: str | None = None
    kit: str | None = None
    opens_network: bool = False


@dataclass(frozen=True, kw_only=True)
class Component:
    """A component that settings can choose, by `use = "<name>"` in the table of its kind.

    Attributes:
        kind: Name of a `KindSpec`.
        name: Letters, digits, `_` and `-`; how users choose it.
        factory: Called with (its own settings, the context of its kind); returns the component.
            Imports what is heavy.
        settings: Model of the table `[<kind>.<name>]`.
        capabilities: Words from `KindSpec.capabilities` of its kind.
        summary: One line for `enginecore plugins`.
    """

    kind: str
    name: str
    factory: Callable[[Any, Any], Any]
    settings: type[BaseModel] = ComponentSettings
    capabilities: frozenset[str] = field(default_factory=frozenset)
    summary: str = ""


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command that `enginecore NAME` runs.

    Attributes:
        name: Lower-case words joined by `-`.
        target: "module:attribute" of a Typer app, or of a function that Typer can make a command
            of. The module is imported only when the command is called.
        summary: One line for `enginecore --help`.
    """

    name: str
    target: str
    summary: str


class HookSpecs:
    """The hooks of enginecore. A plugin implements any of them."""

    @hookspec
    def enginecore_components(self) -> Iterable[Component]:  # type: ignore[empty-body]
        """The components that this plugin offers. Called once, right after import."""

    @hookspec
    def enginecore_kinds(self) -> Iterable[KindSpec]:  # type: ignore[empty-body]
        """Kinds of component that this plugin adds. Called once, right after import.

        Every plugin may offer components of them, and `<table>.use` chooses one of those.
        """

    @hookspec
    def enginecore_commands(self) -> Iterable[Command]:  # type: ignore[empty-body]
        """Commands that this plugin adds to `enginecore`. Called once, right after import."""

    @hookspec
    def enginecore_step_finished(self, record: StepRecord) -> None:
        """A step was settled. Called on the engine core's thread.

        An exception is logged and changes nothing.
        """

    @hookspec
    def enginecore_request_finished(self, record: RequestRecord) -> None:
        """A request ended. Called on the engine core's thread.

        An exception is logged and changes nothing.
        """


# -- components made of other components -------------------------------------------------------------


class Catalog(Protocol):
    """The active components, for a component that is made of others, such as an executor of models.

    Names of kinds are those of `KindSpec.name`. `enginecore.catalog.restore_catalog` makes the
    catalog again in a worker process.
    """

    def components(self, kind: str) -> tuple[Component, ...]:
        """All active components of a kind, in order of discovery; one name may be there twice."""
        ...

    def chosen(self, kind: str) -> str | None:
        """Name of the component in `<table>.use`, or the kind's default; None if it has none.

        Raises:
            ConfigurationError: the engine's settings have no table for this kind.
        """
        ...

    def get(self, kind: str, name: str) -> Component:
        """The component of this kind and name.

        Raises:
            PluginError: no active plugin offers it: names what is close, and which plugins are left
                out and why. Or several do: names them.
        """
        ...

    def build(self, kind: str, name: str, context: Any, settings: BaseModel | None = None) -> Any:
        """Build a component, and check it against its kind's interface.

        Args:
            kind: Name of the kind.
            name: Name of the component.
            context: Context for the factory, beside settings: an instance of `KindSpec.context`.
            settings: Settings of the component; None: those of its table, or its defaults if its
                kind has no table.

        Raises:
            EngineCoreError: raised by its factory on purpose.
            ConfigurationError: it requires settings that are not set.
            PluginError: it cannot be had, or cannot be built, or does not fill the interface; says
                why.
        """
        ...

    def to_plain(self, *kinds: str) -> dict[str, Any]:
        """The components of these kinds as plain JSON-able data for `restore_catalog`.

        Raises:
            ConfigurationError: a component's settings hold a value that plain data cannot.
            PluginError: a component was given as an object that another process cannot import.
        """
        ...


class EmptyCatalog:
    """A `Catalog` without components: the default of contexts that are made by hand."""

    def components(self, kind: str) -> tuple[Component, ...]:
        return ()

    def chosen(self, kind: str) -> str | None:
        return None

    def get(self, kind: str, name: str) -> Component:
        raise PluginError(f"the catalog is empty, so it has no {kind} {name!r}: give the context a catalog")

    def build(self, kind: str, name: str, context: Any, settings: BaseModel | None = None) -> Any:
        return self.get(kind, name)

    def to_plain(self, *kinds: str) -> dict[str, Any]:
        return {}


# -- what factories get ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorContext:
    """Context of executors. `max_model_len` None: whatever the model was made for.

    Attributes:
        model: Name or path, as the user gave it.
        dtype: "auto", "float32", "bfloat16" or "float16".
        device: "auto", "cpu", "cuda" or "cuda:N".
        max_model_len: Longest context that will be asked for, in tokens, if the user fixed it.
        block_size: Tokens per KV block.
        max_num_seqs: Running requests at most.
        max_num_batched_tokens: Tokens in a step at most.
        seed: The engine's seed.
        clock: The engine's clock.
        catalog: The active components, for an executor that is made of some.
    """

    model: str
    dtype: str
    device: str
    max_model_len: int | None
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    seed: int
    clock: Clock
    catalog: Catalog = field(default_factory=EmptyCatalog)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionContext:
    """Context of eviction orders.

    Attributes:
        num_blocks: KV blocks in the pool.
        block_size: Tokens per block.
        seed: The engine's seed.
    """

    num_blocks: int
    block_size: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KVCacheManagerContext:
    """Context of KV cache managers.

    Attributes:
        config: The KV cache as sized.
        enable_prefix_caching: As in force.
        clock: The engine's clock.
        eviction: The order of eviction, empty and the manager's own; None for one that does not
            declare "eviction", or without prefix caching.
    """

    config: KVCacheConfig
    enable_prefix_caching: bool
    clock: Clock
    eviction: EvictionOrder | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VictimContext:
    """Context of victim choices.

    Attributes:
        max_num_seqs: Requests holding blocks at most.
        seed: The engine's seed.
    """

    max_num_seqs: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerContext:
    """Context of schedulers: limits in force, and the parts that a scheduler works with.

    Attributes:
        max_num_seqs: Requests holding blocks at most, over all batches in flight.
        max_num_batched_tokens: Tokens in a step at most.
        max_model_len: Tokens of one request at most.
        enable_chunked_prefill: Whether a prompt may be split over steps.
        kv_cache_manager: Owned by the scheduler from here on.
        executor: Capabilities of the executor.
        clock: The engine's clock.
        victim: Chooses the request that gives way; None for a scheduler that does not declare
            "victim".
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    enable_chunked_prefill: bool
    kv_cache_manager: KVCacheManager
    executor: ExecutorCapabilities
    clock: Clock
    victim: VictimChoice | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportContext:
    """Context of transports. Those that only carry messages need none of it.

    Attributes:
        start_engine_core: Builds the engine core, in the calling process and thread.
        clock: The engine's clock, where client and engine core share a process.
        shutdown_timeout: Seconds that running requests get when the engine is shut down; 0 ends
            them at once.
    """

    start_engine_core: Callable[[], EngineCoreApi]
    clock: Clock
    shutdown_timeout: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerContext:
    """Context of tokenizers.

    Attributes:
        model: Name or path of the model, as the user gave it.
        tokenizer: Name or path of the tokenizer if it is another one; None: the model's own.
    """

    model: str
    tokenizer: str | None
