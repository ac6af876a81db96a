"""The base of the tables in experiment files."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from enginecore.registry.spelling import closest


class Table(BaseModel):
    """Frozen; an unknown key is an error that names the closest known one."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, values: Any) -> Any:
        if isinstance(values, Mapping) and (problem := unknown_keys(values, cls.model_fields)):
            raise ValueError(problem)
        return values


def unknown_keys(keys: Iterable[Any], known: Iterable[str]) -> str:
    """Sentences that name the keys which are not known, and what would be right; empty if all are."""
    names = list(known)
    hints = {str(key): closest(str(key), names) for key in keys if key not in names}
    sentences = [f"{key!r} is no setting here{hint}" for key, hint in hints.items() if hint]
    if strange := [repr(key) for key, hint in hints.items() if not hint]:
        are_none = "is no setting" if len(strange) == 1 else "are no settings"
        sentences.append(f"{', '.join(strange)} {are_none} here; these are known: {', '.join(names)}")
    return " ".join(sentences)
