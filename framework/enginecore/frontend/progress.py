"""The progress bar of `LLM.generate`."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from enginecore.frontend.outputs import RequestOutput


class Progress(Protocol):
    """Counts one more finished request."""

    def __call__(self, output: RequestOutput) -> None:
        """One more is done."""
        ...


@contextmanager
def progress_bar(total: int, *, shown: bool) -> Iterator[Progress]:
    """Count finished requests, with tokens per second in and out, on stderr if it is a terminal and
    `shown` is set.
    """
    if not shown or not sys.stderr.isatty():
        yield lambda output: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("Generating"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[rates]}", style="dim"),
    )
    tokens_in = tokens_out = 0
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("generate", total=total, rates="")

        def advance(output: RequestOutput) -> None:
            nonlocal tokens_in, tokens_out
            tokens_in += len(output.prompt_token_ids)
            tokens_out += len(output.outputs[0].token_ids)
            seconds = max(bar.tasks[0].elapsed or 0.0, 1e-9)
            rates = f"in {tokens_in / seconds:,.0f} tok/s, out {tokens_out / seconds:,.0f} tok/s"
            bar.update(task, advance=1, rates=rates)

        yield advance
