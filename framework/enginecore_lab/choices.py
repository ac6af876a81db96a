"""Choices of components in experiment files, read by pydantic with the components that plugins offer.

A field of the type `ArrivalsChoice` takes a table such as `{kind = "poisson", rate = 6.0}`: `kind` names the component,
the other keys are its settings. The registry in the context of the validation says which components there are:

    Model.model_validate(values, context={"registry": registry})

Without one, all plugins that are installed count.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Generic, NoReturn, TypeVar

from pydantic import BaseModel, GetCoreSchemaHandler, SerializationInfo, ValidationInfo
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, PydanticKnownError, ValidationError
from pydantic_core.core_schema import plain_serializer_function_ser_schema, with_info_plain_validator_function

from enginecore.errors import PluginError
from enginecore.plugin import Component, KindSpec
from enginecore.registry import Registry
from enginecore.registry.component import build_component
from enginecore_lab.interfaces import ArrivalProcess, Direction, LengthDistribution, MeasuredRun, Metric
from enginecore_lab.kinds import ARRIVALS, LENGTHS, METRIC
from enginecore_lab.tables import unknown_keys

Built = TypeVar("Built")


@dataclass(frozen=True, eq=False)
class ComponentChoice(Generic[Built]):
    """A component and its settings, as a file chooses them.

    Attributes:
        component: The component.
        settings: Settings of the component.
        interface: The class that it must be built as.
    """

    component: Component
    settings: BaseModel
    interface: type

    @cached_property
    def built(self) -> Built:
        """The component itself, made when it is first asked for.

        Raises:
            PluginError: it cannot be built, or is not what its kind says.
        """
        built: Built = build_component(self.component, self.settings, None, self.interface)
        return built

    @property
    def name(self) -> str:
        """The component's name."""
        return self.component.name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComponentChoice) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((self.component.kind, self.name))

    def _key(self) -> tuple[object, ...]:
        return self.component.kind, self.name, self.settings


@dataclass(frozen=True, eq=False)
class MetricChoice(ComponentChoice[Metric]):
    """A metric with the name that experiments know it by."""

    @property
    def summary(self) -> str:
        """One line: what it is."""
        return self.component.summary

    @property
    def unit(self) -> str:
        """See `Metric.unit`."""
        return self.built.unit

    @property
    def direction(self) -> Direction:
        """See `Metric.direction`."""
        return self.built.direction

    @property
    def follows_queue(self) -> bool:
        """See `Metric.follows_queue`."""
        return self.built.follows_queue

    def compute(self, run: MeasuredRun, /) -> float:
        """See `Metric.compute`."""
        return self.built.compute(run)


class ChoiceOf:
    """Makes a field of a pydantic model a choice among the components of a kind: a table with `kind`."""

    def __init__(self, kind: KindSpec) -> None:
        self.kind = kind

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Validate with the registry of the context; write as a file has it."""
        return with_info_plain_validator_function(
            self._validate, serialization=plain_serializer_function_ser_schema(self.dump, info_arg=True)
        )

    def read(self, value: Any, registry: Registry) -> ComponentChoice[Any]:
        """The choice that a value of a file makes.

        Raises:
            ValueError: it makes none; says why.
        """
        if not isinstance(value, Mapping):
            raise ValueError("must be a table that says its kind")
        table = dict(value)
        if "kind" not in table:
            raise PydanticKnownError("union_tag_not_found", {"discriminator": "'kind'"})
        return self.choose(self._find(table.pop("kind"), registry), table, registry)

    def choose(self, component: Component, table: Mapping[str, Any], registry: Registry) -> ComponentChoice[Any]:
        """A component with the settings of a table.

        Raises:
            ValueError: the settings are wrong; says which, and what would be right.
        """
        if problem := unknown_keys(table, component.settings.model_fields):
            raise ValueError(problem)
        return ComponentChoice(component, validated(component.settings, table, registry), self.kind.interface)

    def dump(self, choice: ComponentChoice[Any], info: SerializationInfo) -> Any:
        """The choice as a file has it."""
        return {"kind": choice.name, **dumped(choice.settings, info)}

    def _validate(self, value: Any, info: ValidationInfo) -> ComponentChoice[Any]:
        if isinstance(value, ComponentChoice):
            return value
        return self.read(value, registry_of(info.context))

    def _find(self, name: Any, registry: Registry) -> Component:
        if not isinstance(name, str):
            _refuse_kind(name, "must be text")
        try:
            return registry.get(self.kind.name, name)
        except PluginError as error:
            _refuse_kind(name, str(error))


class MetricNamed(ChoiceOf):
    """Makes a field a metric, by its name."""

    def read(self, value: Any, registry: Registry) -> MetricChoice:
        if not isinstance(value, str):
            raise ValueError("must be the name of a metric")
        return find_metric(value, registry)

    def dump(self, choice: ComponentChoice[Any], info: SerializationInfo) -> str:
        return choice.name


ArrivalsChoice = Annotated[ComponentChoice[ArrivalProcess], ChoiceOf(ARRIVALS)]
LengthsChoice = Annotated[ComponentChoice[LengthDistribution], ChoiceOf(LENGTHS)]
MetricByName = Annotated[MetricChoice, MetricNamed(METRIC)]


def find_metric(name: str, registry: Registry) -> MetricChoice:
    """The metric of this name.

    Raises:
        ValueError: no plugin offers it, or several do, or its settings have no defaults; says which.
    """
    try:
        component = registry.get(METRIC.name, name)
        return MetricChoice(component, component.settings(), METRIC.interface)
    except (PluginError, ValidationError) as error:
        raise ValueError(str(error)) from None


def all_metrics(registry: Registry) -> list[MetricChoice]:
    """All metrics that can be chosen, in the order in which plugins offer them."""
    offered = registry.components(METRIC.name)
    return [find_metric(each.name, registry) for each in offered if (METRIC.name, each.name) not in registry.conflicts]


def registry_of(context: Any) -> Registry:
    """The registry of a validation's context; without one, of all plugins that are installed."""
    registry = (context or {}).get("registry")
    return registry if isinstance(registry, Registry) else Registry.discover()


def validated(model: type[BaseModel], values: Mapping[str, Any], registry: Registry) -> BaseModel:
    """Settings from values, in which choices are made with this registry."""
    return model.model_validate(dict(values), context={"registry": registry})


def dumped(settings: BaseModel, info: SerializationInfo) -> dict[str, Any]:
    """Settings within something larger, written as that is."""
    return settings.model_dump(mode=info.mode, exclude_unset=info.exclude_unset, exclude_none=info.exclude_none)


def _refuse_kind(name: Any, reason: str) -> NoReturn:
    error = PydanticCustomError("component", "{reason}", {"reason": reason})
    raise ValidationError.from_exception_data("kind", [InitErrorDetails(type=error, loc=("kind",), input=name)])
