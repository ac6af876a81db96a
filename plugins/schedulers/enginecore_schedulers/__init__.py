"""Scheduling policies and victim choices that come with enginecore, one module each."""

from enginecore.plugin import Component, hookimpl
from enginecore.scheduling import policy_component
from enginecore_schedulers import victims
from enginecore_schedulers.fcfs import Fcfs


@hookimpl
def enginecore_components() -> list[Component]:
    """What this plugin offers."""
    return [policy_component("fcfs", Fcfs), *victims.COMPONENTS]
