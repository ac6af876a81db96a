"""Options that commands share."""

from pathlib import Path
from typing import Annotated

import typer

ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="Settings file: TOML, YAML or JSON.", show_default=False)
]

Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="One setting, such as scheduler.use=fcfs. May be repeated."),
]

AsJson = Annotated[bool, typer.Option("--json", help="Write JSON.")]
