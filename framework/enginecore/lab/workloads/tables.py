"""What the tables of a workload's settings have in common."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from enginecore.registry.spelling import closest


class Table(BaseModel):
    """Frozen; an unknown key is an error that names the closest known one."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, values: Any) -> Any:
        unknown = [str(key) for key in values if key not in cls.model_fields] if isinstance(values, Mapping) else []
        if unknown:
            known = ", ".join(cls.model_fields)
            sentences = [
                f"{key!r} is no setting here" + (closest(key, cls.model_fields) or f"; these are known: {known}")
                for key in unknown
            ]
            raise ValueError("; ".join(sentences))
        return values
