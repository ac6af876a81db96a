"""Which components exist: discovery of plugins, isolation of broken ones, and resolution by name."""

from enginecore.registry.observers import Observers
from enginecore.registry.record import PluginRecord, Status
from enginecore.registry.registry import Registry

__all__ = ["Observers", "PluginRecord", "Registry", "Status"]
