"""Scheduler components made of policy classes."""

import inspect
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, create_model

from enginecore.errors import PluginError
from enginecore.kinds import SCHEDULER
from enginecore.plugin import Component, ComponentSettings, SchedulerContext
from enginecore.scheduling.continuous_batching import ContinuousBatchingScheduler
from enginecore.scheduling.policy import SchedulingPolicy


class PolicyFactory:
    """Builds the policy from its settings and puts it under the mechanism."""

    def __init__(self, policy: Callable[..., SchedulingPolicy]) -> None:
        self._policy = policy

    def __call__(self, settings: BaseModel, context: SchedulerContext) -> ContinuousBatchingScheduler:
        """The scheduler for one engine."""
        arguments = {name: getattr(settings, name) for name in type(settings).model_fields}
        policy = self._policy(**arguments)
        if not isinstance(policy, SchedulingPolicy):
            raise PluginError(f"{self._policy!r} made a {type(policy).__name__}, which is no SchedulingPolicy")
        return ContinuousBatchingScheduler(policy, context)


def policy_component(
    name: str,
    policy: Callable[..., SchedulingPolicy],
    *,
    summary: str = "",
    settings: type[BaseModel] | None = None,
) -> Component:
    """A scheduler component that runs this policy.

    Args:
        name: Value of `scheduler.use` that chooses it.
        policy: The policy class. Its constructor's keyword arguments are its settings.
        summary: One line; the first line of the class's docstring by default.
        settings: Model of its table; by default made from the constructor's annotated arguments.

    Raises:
        PluginError: an argument of the constructor cannot be a setting, or a method takes other
            arguments than the one it overrides.
    """
    _check_methods(policy)
    return Component(
        kind="scheduler",
        name=name,
        factory=PolicyFactory(policy),
        settings=settings or _settings_of(policy),
        capabilities=_capabilities_of(policy),
        summary=summary or (inspect.getdoc(policy) or "").partition("\n")[0],
    )


def _settings_of(policy: Callable[..., SchedulingPolicy]) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for argument in inspect.signature(policy, eval_str=True).parameters.values():
        if argument.kind not in (argument.POSITIONAL_OR_KEYWORD, argument.KEYWORD_ONLY):
            raise PluginError(
                f"{policy!r}: argument {argument} of the constructor cannot be a setting: name each one, with its type"
            )
        if argument.annotation is argument.empty:
            raise PluginError(f"{policy!r}: argument {argument.name!r} of the constructor needs a type annotation")
        default = ... if argument.default is argument.empty else argument.default
        fields[argument.name] = (argument.annotation, default)
    return create_model("PolicySettings", __base__=ComponentSettings, **fields)


def _capabilities_of(policy: Callable[..., SchedulingPolicy]) -> frozenset[str]:
    """All capabilities of a scheduler; "victim" only if the policy does not override `victim`."""
    overrides_victim = getattr(policy, "victim", None) is not SchedulingPolicy.victim
    return frozenset(SCHEDULER.capabilities) - ({"victim"} if overrides_victim else set())


def _check_methods(policy: Callable[..., SchedulingPolicy]) -> None:
    """A method with other arguments than its model's would fail at the first request."""
    for name, model in vars(SchedulingPolicy).items():
        method = getattr(policy, name, model) if inspect.isclass(policy) else model
        if name.startswith("_") or not inspect.isfunction(model) or not inspect.isfunction(method):
            continue
        wanted = inspect.signature(model)
        try:
            inspect.signature(method).bind(*wanted.parameters)
        except TypeError as error:
            raise PluginError(f"{policy!r}: {name} must take {wanted}: {error}") from None
