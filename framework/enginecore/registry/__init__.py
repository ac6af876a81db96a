"""Plugins and their components: discovery, isolation of broken plugins, and look-up by name."""

from enginecore.registry.observers import Observers
from enginecore.registry.record import PluginRecord, Status
from enginecore.registry.registry import Registry

__all__ = ["Observers", "PluginRecord", "Registry", "Status"]
