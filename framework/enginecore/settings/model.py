"""`EngineSettings`: every setting, its type and its default."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from enginecore.errors import ConfigurationError
from enginecore.plugin import Component, KindSpec
from enginecore.registry import Registry
from enginecore.registry.component_rules import has_defaults
from enginecore.settings.values import KVCacheMemory, MaxModelLen


class ComponentTable(BaseModel):
    """One kind's table: `use` names the component that runs, and a table of its name holds its
    settings.

    Attributes:
        kind: Name of the kind.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: ClassVar[str]
    use: str | None


class PluginSettings(BaseModel):
    """Which plugins may be imported, by entry-point name or by distribution name (all plugins of
    it).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    allow: tuple[str, ...] | None = Field(default=None, description="Only these; an empty list: none. Unset: all.")
    block: tuple[str, ...] = Field(default=(), description="Not these, whatever `allow` says.")


class DebugSettings(BaseModel):
    """Checks for debugging."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    check_invariants: bool = Field(default=False, description="Check every component's books after every step. Slow.")
    check_components: bool = Field(
        default=False,
        description="Check each call to and from scheduler and KV cache manager against their contracts. Slow.",
    )


@dataclass(frozen=True, slots=True)
class Selection:
    """The component that the settings choose for one kind.

    Attributes:
        kind: Name of the kind.
        table: The kind's settings table.
    """

    kind: str
    table: ComponentTable

    @property
    def name(self) -> str:
        """The component that `use` names, whether it exists or not: see `Registry.get`.

        Raises:
            ConfigurationError: `use` is unset, and the kind has no default.
        """
        if self.table.use is None:
            raise ConfigurationError(f"no {self.kind} is chosen: set the key `use` of its table")
        return self.table.use

    @property
    def settings(self) -> Any:
        """Settings of the chosen component: an instance of its own settings model.

        Raises:
            ConfigurationError: these settings were made without that component.
        """
        return self.settings_of(self.name)

    def settings_of(self, name: str) -> Any:
        """Settings of the component `name` of this kind, chosen or not: an instance of its own
        settings model.

        Raises:
            ConfigurationError: these settings were made without that component, or it requires
                settings that are not set.
        """
        settings = getattr(self.table, name) if name in type(self.table).model_fields else None
        if not isinstance(settings, BaseModel):
            raise ConfigurationError(
                f"these settings hold no table for {self.kind} {name!r}: no plugin that offers it was loaded with them"
            )
        return settings


class EngineSettings(BaseSettings):
    """All settings of an engine. Frozen: what is found out at run time is never written back.

    An instance is just its values: constructing one reads neither environment nor files.
    `load_settings` does, and gives an instance of the subclass that `settings_model` makes, with a
    table per kind of component.
    """

    model_config = SettingsConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, title="enginecore settings")

    model: str = Field(
        default="smollm2-135m", min_length=1, description="Folder, GGUF file, hub id or known name of the model."
    )
    tokenizer: str | None = Field(default=None, description="Name or path of the tokenizer. Unset: the model's own.")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto", description="Of weights and activations."
    )
    device: str = Field(default="auto", min_length=1, description="auto, cpu, cuda or cuda:N.")
    max_model_len: MaxModelLen = Field(
        default=None,
        description="Tokens of one request at most, prompt and output together. Unset: what the model was made for; "
        "auto: the most that fits in the KV cache.",
    )
    max_num_seqs: int = Field(default=256, ge=1, description="Running requests at most.")
    max_num_waiting: int | None = Field(
        default=None, ge=0, description="Requests beyond max_num_seqs that may wait; more are refused. Unset: no limit."
    )
    max_num_batched_tokens: int = Field(default=2048, ge=1, description="Tokens in a step at most.")
    block_size: int = Field(default=16, ge=1, description="Tokens per KV block.")
    num_kv_blocks: int | None = Field(
        default=None, ge=1, description="KV blocks, instead of as many as kv_cache_memory holds."
    )
    kv_cache_memory: KVCacheMemory = Field(
        default=0.5,
        description="For the KV cache: a size such as 2GiB, bytes, or a fraction of the memory that is free.",
    )
    enable_prefix_caching: bool = Field(
        default=True, description="Requests with the same beginning share its KV blocks."
    )
    enable_chunked_prefill: bool = Field(default=True, description="A prompt may be split over several steps.")
    seed: int = Field(
        default=0, ge=-(1 << 63), lt=1 << 63, description="Of all that is drawn without a seed of its own."
    )
    startup_timeout: float = Field(
        default=600.0, gt=0, description="Seconds for an engine core in a process of its own to become ready."
    )
    shutdown_timeout: float = Field(default=0.0, ge=0, description="Seconds for running requests to end at shutdown.")

    plugins: PluginSettings = PluginSettings()
    debug: DebugSettings = DebugSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only the constructor's arguments: a child process must not read its environment again."""
        return (init_settings,)

    @model_validator(mode="wrap")
    @classmethod
    def _refuse_switches_for_numbers(
        cls, data: Any, handler: ModelWrapValidatorHandler["EngineSettings"]
    ) -> "EngineSettings":
        # pydantic reads true as 1, also in the tables of plugins, whose types are not ours to tighten
        settings = handler(data)
        mistake = PydanticCustomError("switch_for_number", "must be a number, not true or false")
        errors = [InitErrorDetails(type=mistake, loc=path, input=raw) for path, raw in _switches(data, settings, ())]
        if errors:
            raise ValidationError.from_exception_data(cls.__name__, errors)
        return settings

    def component(self, kind: str) -> Selection:
        """Which component runs for a kind, and its own settings.

        Raises:
            ConfigurationError: these settings have no table for this kind: no plugin that brings it
                was loaded with them, or components of this kind are not chosen by the engine's
                settings.
        """
        for name in type(self).model_fields:
            table = getattr(self, name)
            if isinstance(table, ComponentTable) and table.kind == kind:
                return Selection(kind, table)
        raise ConfigurationError(
            f"these settings hold no table for {kind}: no plugin that brings it was loaded with them"
        )


RESERVED_TABLES = frozenset({*dir(EngineSettings), *EngineSettings.model_fields, *PluginSettings.model_fields})
"""Names that the table of a plugin's kind cannot have: settings, and keys that are likely to be
meant for `plugins`.
"""


def _switches(raw: Any, value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Where True or False was given and a number came of it."""
    if isinstance(raw, Mapping):
        for key, item in raw.items():
            inner = value.get(key) if isinstance(value, Mapping) else getattr(value, str(key), None)
            yield from _switches(item, inner, (*path, str(key)))
    elif isinstance(raw, bool) and isinstance(value, int | float) and not isinstance(value, bool):
        yield path, raw


def settings_model(registry: Registry) -> type[EngineSettings]:
    """`EngineSettings` with a table for every kind of `registry`, which has a typed table for every
    component.

    A component that is offered twice has no table: its settings might be of either.
    """
    fields: dict[str, Any] = {}
    for kind in registry.kinds.values():
        if kind.table is not None:
            model = _table_model(kind, kind.table, registry.components(kind.name))
            fields[kind.table] = (model, model.model_validate({}))
    return create_model("EngineSettings", __base__=EngineSettings, **fields)


def _table_model(kind: KindSpec, table: str, components: tuple[Component, ...]) -> type[ComponentTable]:
    names = [component.name for component in components]
    fields: dict[str, Any] = {
        component.name: _component_field(component) for component in components if names.count(component.name) == 1
    }
    use = Field(default=kind.default, description=f"Which {kind.name} runs: {', '.join(fields) or 'none is loaded'}.")
    use_type: Any = str if kind.default is not None else str | None
    title = "".join(word.capitalize() for word in table.split("_"))
    model = create_model(f"{title}Table", __base__=ComponentTable, use=(use_type, use), **fields)
    model.kind = kind.name
    return model


def _component_field(component: Component) -> tuple[Any, Any]:
    model: type[BaseModel] = component.settings
    description = component.summary or None
    if has_defaults(model):
        return model, Field(model(), description=description)
    return model | None, Field(default=None, description=description)
