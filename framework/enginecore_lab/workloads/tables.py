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
            hints = {key: closest(key, cls.model_fields) for key in unknown}
            sentences = [f"{key!r} is no setting here{hint}" for key, hint in hints.items() if hint]
            if strange := [repr(key) for key, hint in hints.items() if not hint]:
                are_none = "is no setting" if len(strange) == 1 else "are no settings"
                sentences.append(
                    f"{', '.join(strange)} {are_none} here; these are known: {', '.join(cls.model_fields)}"
                )
            raise ValueError(" ".join(sentences))
        return values
