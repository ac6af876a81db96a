"""Records filled by the names of their fields, so that a value passed on is written once."""

import inspect
from typing import Any, TypeVar

T = TypeVar("T")


def fill(record: type[T], *sources: object, **values: Any) -> T:
    """Make a record: a frozen dataclass or a message.

    Args:
        record: Class of the record.
        sources: Objects with attributes of the same names as its fields; the first that has one
            counts.
        values: Fields that no source has, or that differ from it.

    Raises:
        TypeError: a field has no value.
    """
    for name in inspect.signature(record).parameters:
        holder = next((source for source in sources if hasattr(source, name)), None)
        if name not in values and holder is not None:
            values[name] = getattr(holder, name)
    return record(**values)
