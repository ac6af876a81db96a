"""Types of settings that several policies share."""

from typing import Annotated

from pydantic import Field

NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]
Count = Annotated[int, Field(ge=1, strict=True)]
Switch = Annotated[bool, Field(strict=True)]
