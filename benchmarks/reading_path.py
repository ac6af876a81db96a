"""The functions that one greedy request of four tokens runs through, as a page to read along.

    python benchmarks/reading_path.py            # modules, functions and lines, as a table
    python benchmarks/reading_path.py --write    # writes the page, docs/reading_path.md
    python benchmarks/reading_path.py --check    # exit code 1 if the page differs from the code

The script traces `LLM.generate` from call to return, on transport `inproc` and executor `single`, with the packaged
SmolLM2. Only functions of this repository count. Comprehensions and lambdas belong to their function.
"""

import argparse
import ast
import inspect
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from enginecore import LLM, SamplingParams

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reading_path.md"
NUM_TOKENS = 4
SHORT = 3
"""The page leaves out functions of up to so many lines, docstring apart: accessors, and calls passed on."""

CHAPTERS = {
    "LLM.generate": "From a prompt to a request",
    "EngineCore.add_request": "The engine core accepts it",
    "EngineCore.step": "A step: schedule",
    "DescribedExecutor.execute_model": "A step: execute",
    "ContinuousBatchingScheduler.update_from_output": "A step: update",
    "OutputProcessor.process": "From tokens to text",
}
"""Headings of the page, by the function that opens a chapter."""

INTRODUCTION = f"""# One request, function by function

`LLM.generate` computes one greedy request of {NUM_TOKENS} tokens on transport `inproc` and executor
`single`. This page lists the functions of ours that run, in the order of first calls, each below
its caller. Functions of at most {SHORT} lines are left out. Open the code beside it, and
[architecture.md](architecture.md) for the why.

`make docs` writes this page, and a test fails when the code has moved on.
"""


class Step(NamedTuple):
    """A function at its first call.

    Attributes:
        file: Path below the repository's root.
        name: Qualified name, such as "EngineCore.step".
        depth: Functions of ours that were active when it was called.
    """

    file: str
    name: str
    depth: int

    @property
    def module(self) -> str:
        """Path below the source root, such as "enginecore/core/engine_core.py"."""
        parts = Path(self.file).parts
        return "/".join(parts[1:] if parts[0] == "framework" else parts[2:])


@cache
def _own_file(filename: str) -> str | None:
    """The path below the repository's root, of a file that belongs to the engine or a bundled plugin."""
    path = Path(filename)
    if not path.is_relative_to(ROOT):
        return None
    relative = path.relative_to(ROOT)
    return str(relative) if relative.parts[0] in ("framework", "plugins") else None


@contextmanager
def tracing() -> Iterator[list[Step]]:
    """Collect the functions of ours that are called meanwhile, each at its first call, on all threads."""
    steps: list[Step] = []
    seen: set[tuple[str, str]] = set()

    def depth_of(frame: FrameType | None) -> int:
        depth = 0
        while frame is not None:
            depth += _is_named(frame)
            frame = frame.f_back
        return depth

    def on_event(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and _is_named(frame):
            file, name = _own_file(frame.f_code.co_filename), frame.f_code.co_qualname
            if file is not None and (file, name) not in seen:
                seen.add((file, name))
                steps.append(Step(file, name, depth_of(frame.f_back)))

    threading.setprofile(on_event)
    sys.setprofile(on_event)
    try:
        yield steps
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def _is_named(frame: FrameType) -> bool:
    return _own_file(frame.f_code.co_filename) is not None and not frame.f_code.co_name.startswith("<")


def trace_request() -> list[Step]:
    """Run the request twice and trace the second: the first one imports, warms up and fills caches."""
    params = SamplingParams(max_tokens=NUM_TOKENS, temperature=0, ignore_eos=True)
    settings = {"max_model_len": 128, "num_kv_blocks": 16, "executor.single.num_threads": 1}
    with LLM("smollm2-135m", dtype="float32", **settings) as llm:
        llm.generate("Rain falls because", params, use_tqdm=False)
        with tracing() as steps:
            llm.generate("The capital of France is", params, use_tqdm=False)
    return steps


# -- the page ----------------------------------------------------------------------------------------


class Function(NamedTuple):
    """What the page says of a function.

    Attributes:
        summary: First sentence of its docstring; empty if there is none.
        num_lines: Lines of its body, docstring apart.
    """

    summary: str
    num_lines: int


@cache
def _functions(file: str) -> dict[str, Function]:
    """Functions of a file, by qualified name."""
    found: dict[str, Function] = {}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                found[prefix + child.name] = _described(child)
                visit(child, f"{prefix}{child.name}.<locals>.")
            else:
                visit(child, f"{prefix}{child.name}." if isinstance(child, ast.ClassDef) else prefix)

    visit(ast.parse((ROOT / file).read_text(encoding="utf-8")), "")
    return found


def _described(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Function:
    docstring = ast.get_docstring(node) or ""
    paragraph = inspect.cleandoc(docstring).partition("\n\n")[0].replace("\n", " ")
    body = node.body[1:] if docstring else node.body
    num_lines = (node.end_lineno or 0) - body[0].lineno + 1 if body else 0
    return Function(paragraph.partition(". ")[0].rstrip("."), num_lines)


def _total_lines(steps: list[Step]) -> int:
    return sum(_functions(step.file)[step.name].num_lines for step in steps if step.name in _functions(step.file))


def render_page(steps: list[Step]) -> str:
    """The page in Markdown: chapters, and in each the functions below their callers."""
    lines = [INTRODUCTION]
    shown: list[int] = []  # depths of the functions that enclose the next one
    for step in steps:
        function = _functions(step.file).get(step.name, Function("", SHORT + 1))
        while shown and shown[-1] >= step.depth:
            shown.pop()
        if step.name in CHAPTERS:
            lines += ["", f"## {CHAPTERS[step.name]}", ""]
            shown = []
        elif function.num_lines <= SHORT:
            continue
        indentation = "  " * len(shown)
        lines.append(f"{indentation}- [`{step.name}`](../{step.file})")
        lines += textwrap.wrap(
            function.summary, 100, initial_indent=f"{indentation}  ", subsequent_indent=f"{indentation}  "
        )
        shown.append(step.depth)
    return "\n".join(lines) + "\n"


def print_table(steps: list[Step]) -> None:
    """One row per module, in the order of first calls."""
    table = Table("module")
    for heading in ("functions", "their lines", "module's lines"):
        table.add_column(heading, justify="right")
    by_file: dict[str, list[Step]] = {}
    for step in steps:
        by_file.setdefault(step.file, []).append(step)
    sizes = {file: len((ROOT / file).read_text(encoding="utf-8").splitlines()) for file in by_file}
    for file, inside in by_file.items():
        table.add_row(inside[0].module, str(len(inside)), str(_total_lines(inside)), str(sizes[file]))
    table.add_section()
    table.add_row(f"{len(by_file)} modules", str(len(steps)), str(_total_lines(steps)), str(sum(sizes.values())))
    Console().print(table)


def main() -> None:
    """Print the table, or write or check the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--write", action="store_true", help="write the page")
    mode.add_argument("--check", action="store_true", help="compare the page with the code")
    arguments = parser.parse_args()
    steps = trace_request()
    if arguments.write:
        PAGE.write_text(render_page(steps), encoding="utf-8")
    elif arguments.check:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != render_page(steps):
            sys.exit(f"{PAGE.relative_to(ROOT)} differs from the code: run python benchmarks/reading_path.py --write")
    else:
        print_table(steps)


if __name__ == "__main__":
    main()
