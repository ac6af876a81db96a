"""The settings of an engine: values, where each came from, and one typed table per loaded
component.
"""

from enginecore.settings.loading import Loaded, load_registry, load_settings, restore_settings
from enginecore.settings.model import (
    ComponentTable,
    DebugSettings,
    EngineSettings,
    PluginSettings,
    Selection,
    settings_model,
)
from enginecore.settings.sources import Layer, parse_overrides

__all__ = [
    "ComponentTable",
    "DebugSettings",
    "EngineSettings",
    "Layer",
    "Loaded",
    "PluginSettings",
    "Selection",
    "load_registry",
    "load_settings",
    "parse_overrides",
    "restore_settings",
    "settings_model",
]
