"""Options of the commands that generate text."""

from typing import Annotated

import typer

MaxTokens = Annotated[int, typer.Option(help="Output tokens at most.")]
Temperature = Annotated[float, typer.Option(help="0 always takes the likeliest token.")]
TopP = Annotated[float, typer.Option(help="Smallest set of tokens whose probability reaches this.")]
TopK = Annotated[int, typer.Option(help="Only the k likeliest tokens; 0: all.")]
Seed = Annotated[int | None, typer.Option(help="The same seed draws the same tokens.", show_default=False)]
Stop = Annotated[list[str] | None, typer.Option(help="Text that ends the output. May be repeated.", show_default=False)]
