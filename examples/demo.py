"""Several completions of a real model at once, streamed, and what ran: `make demo`.

On a terminal each answer grows in a panel of its own; in a log, lines appear as they are complete.
"""

import sys
import time
from contextlib import closing

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from enginecore import LLM, SamplingParams
from enginecore.errors import EngineCoreError

QUESTIONS = [
    "What is gravity? Answer in two sentences.",
    "Write the first lines of a story about a lighthouse.",
    "Name three things that a good scheduler must do.",
    "Why is the sky blue? Explain it to a child.",
]
PARAMS = SamplingParams(temperature=0, max_tokens=64)
LINE = 96


class Panels:
    """One growing panel per question."""

    def __init__(self, console, questions):
        self.texts = [Text() for _ in questions]
        panels = [
            Panel(text, title=escape(question), title_align="left", border_style="blue")
            for text, question in zip(self.texts, questions, strict=True)
        ]
        self.live = Live(Group(*panels), console=console, refresh_per_second=12)

    def __enter__(self):
        self.live.start()
        return self

    def __exit__(self, *exception):
        self.live.stop()

    def add(self, index, text, finished):
        self.texts[index].append(text)


class Lines:
    """One line at a time, marked with the number of its question."""

    def __init__(self, console, questions):
        self.console = console
        self.open = [""] * len(questions)
        for number, question in enumerate(questions, 1):
            self.print(number, "?", question)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass

    def add(self, index, text, finished):
        *whole, rest = (self.open[index] + text).split("\n")
        while len(rest) > LINE and " " in rest:
            line, rest = rest[: rest.rindex(" ")], rest[rest.rindex(" ") + 1 :]
            whole.append(line)
        self.open[index] = rest
        for line in [*whole, rest] if finished else whole:
            if line.strip():
                self.print(index + 1, ">", line)

    def print(self, number, mark, text):
        self.console.print(f"[{number}] {mark} {text}", markup=False, highlight=False, soft_wrap=True)


def answer(llm, console):
    """Stream all answers side by side; returns the last output of each and the seconds it all took."""
    prompts = [llm.render_chat([{"role": "user", "content": question}]) for question in QUESTIONS]
    view = Panels if console.is_terminal else Lines
    started, ends = time.perf_counter(), {}
    with view(console, QUESTIONS) as shown, closing(llm.stream(prompts, PARAMS)) as outputs:
        for index, output in outputs:
            shown.add(index, output.outputs[0].text, output.finished)
            if output.finished:
                ends[index] = output
    return [ends[index] for index in range(len(QUESTIONS))], time.perf_counter() - started


def report_speed(console, ends, seconds):
    table = Table("answer", "prompt tokens", "output tokens", "finish reason", "TTFT", "tokens/s", title="Speed")
    for number, end in enumerate(ends, 1):
        metrics = end.metrics
        table.add_row(
            str(number),
            str(len(end.prompt_token_ids)),
            str(metrics.num_output_tokens),
            end.error or end.outputs[0].finish_reason,
            f"{metrics.time_to_first_token * 1000:.0f} ms",
            f"{1 / metrics.time_per_output_token:.1f}" if metrics.time_per_output_token else "",
        )
    tokens = sum(end.metrics.num_output_tokens for end in ends)
    table.caption = f"together: {tokens} tokens in {seconds:.1f} s = {tokens / seconds:.1f} tokens/s"
    console.print(table)


def report_components(console, llm):
    table = Table("component", "name", "found by entry point", "of", title="What ran")
    for kind, origin in llm.origins.items():
        table.add_row(kind, llm.info.components[kind], origin.entry_point, f"{origin.distribution} {origin.version}")
    info = llm.info
    table.caption = (
        f"{info.model}, {info.dtype} on {info.device}; "
        f"{info.num_blocks:,} KV blocks of {info.block_size} tokens, max_model_len {info.max_model_len:,}"
    )
    console.print(table)


def main():
    console = Console()
    started = time.perf_counter()
    with LLM() as llm:
        llm.get_tokenizer()
        console.print(f"{llm.info.model} is ready after {time.perf_counter() - started:.1f} s\n", highlight=False)
        ends, seconds = answer(llm, console)
        console.print()
        report_speed(console, ends, seconds)
        report_components(console, llm)
    return 1 if any(end.error for end in ends) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except EngineCoreError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
