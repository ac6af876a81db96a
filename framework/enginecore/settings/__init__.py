"""Settings: what an engine is told, where each value came from, and one typed table per loaded component."""

from enginecore.settings.loading import Loaded, load_registry, load_settings, restore_settings
from enginecore.settings.model import (
    TABLES,
    ComponentTable,
    DebugSettings,
    EngineSettings,
    PluginSettings,
    Selection,
    settings_model,
)
from enginecore.settings.sources import Layer, parse_overrides

__all__ = [
    "TABLES",
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
