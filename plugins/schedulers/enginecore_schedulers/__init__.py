"""Scheduling policies and victim choices that come with enginecore, one module each."""

from enginecore.plugin import Component, hookimpl
from enginecore.scheduling import policy_component
from enginecore_schedulers import victims
from enginecore_schedulers.edf import Edf
from enginecore_schedulers.fcfs import Fcfs
from enginecore_schedulers.gittins import Gittins
from enginecore_schedulers.lpm import Lpm
from enginecore_schedulers.mlfq import Mlfq
from enginecore_schedulers.prefill_first import PrefillFirst
from enginecore_schedulers.priority import Priority
from enginecore_schedulers.sjf import Sjf
from enginecore_schedulers.srpt import Srpt
from enginecore_schedulers.static_batch import StaticBatch
from enginecore_schedulers.vtc import Vtc


@hookimpl
def enginecore_components() -> list[Component]:
    """The components of this plugin."""
    return [
        policy_component("fcfs", Fcfs),
        policy_component("priority", Priority),
        policy_component("prefill_first", PrefillFirst),
        policy_component("static_batch", StaticBatch),
        policy_component("sjf", Sjf),
        policy_component("srpt", Srpt),
        policy_component("mlfq", Mlfq),
        policy_component("vtc", Vtc),
        policy_component("edf", Edf),
        policy_component("lpm", Lpm),
        policy_component("gittins", Gittins),
        *victims.COMPONENTS,
    ]
