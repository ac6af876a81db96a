"""EngineCore: one scheduler, one executor, and the steps between them."""

from enginecore.core.engine_core import EngineCore
from enginecore.core.utilities import utility_result_type

__all__ = ["EngineCore", "utility_result_type"]
