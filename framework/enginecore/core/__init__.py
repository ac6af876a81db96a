"""EngineCore: built from settings and registry, sized to the memory that is free, run step by step."""

from enginecore.core.builder import build_engine_core
from enginecore.core.component import build_component
from enginecore.core.engine_core import EngineCore
from enginecore.core.utilities import utility_result_type

__all__ = ["EngineCore", "build_component", "build_engine_core", "utility_result_type"]
