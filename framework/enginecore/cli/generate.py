"""The command `enginecore generate`: completions of prompts."""

import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from enginecore.cli.options import AsJson, ConfigFile, Overrides
from enginecore.cli.report import Tally, as_plain, components_line, load_llm
from enginecore.cli.sampling_options import MaxTokens, Seed, Stop, Temperature, TopK, TopP
from enginecore.cli.streams import standard_input
from enginecore.frontend.llm import LLM
from enginecore.frontend.outputs import RequestOutputKind
from enginecore.sampling import SamplingParams

Prompts = Annotated[list[str] | None, typer.Argument(metavar="PROMPT", show_default=False)]
PromptsFile = Annotated[
    str | None, typer.Option(metavar="FILE", help="One prompt per line; - is standard input.", show_default=False)
]
IgnoreEos = Annotated[bool, typer.Option("--ignore-eos", help="Go on after the model's end of text.")]


def generate(
    prompts: Prompts = None,
    prompts_file: PromptsFile = None,
    max_tokens: MaxTokens = 128,
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
    top_k: TopK = 0,
    seed: Seed = None,
    stop: Stop = None,
    ignore_eos: IgnoreEos = False,
    config: ConfigFile = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Complete prompts.

    One prompt is shown as it is written; several, as they end. With --json: one object per line.
    """
    texts = [*(prompts or ()), *_read_prompts(prompts_file)]
    if not texts:
        raise typer.BadParameter("give a prompt, or a file of them with --prompts-file")
    params = SamplingParams(
        max_tokens=max_tokens,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        seed=seed,
        stop=tuple(stop or ()),
        ignore_eos=ignore_eos,
    )
    with load_llm(config, overrides) as llm:
        try:
            failed = _run(llm, texts, params, as_json)
        except KeyboardInterrupt:
            typer.echo("\ninterrupted", err=True)
            raise typer.Exit(130) from None
    if failed:
        raise typer.Exit(1)


def _read_prompts(prompts_file: str | None) -> list[str]:
    if prompts_file is None:
        return []
    try:
        text = standard_input().read() if prompts_file == "-" else Path(prompts_file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"--prompts-file {prompts_file}: {error}") from error
    return [line for line in text.splitlines() if line.strip()]


def _run(llm: LLM, texts: Sequence[str], params: SamplingParams, as_json: bool) -> bool:
    """Generate and print; returns whether a request failed."""
    live = len(texts) == 1 and not as_json
    kind = RequestOutputKind.DELTA if live else RequestOutputKind.FINAL_ONLY
    tally, failed = Tally(), False
    with closing(llm.stream(texts, params, output_kind=kind)) as outputs:
        for index, output in outputs:
            if as_json:
                typer.echo(json.dumps(as_plain(index, texts[index], output), ensure_ascii=False))
            elif live:
                typer.echo(output.outputs[0].text, nl=output.finished)
            else:
                _print_completion(index, texts[index], output.outputs[0].text)
            if output.finished:
                tally.add(output)
            if output.error is not None:
                failed = True
                typer.echo(f"error: prompt {index}: {output.error}", err=True)
    if not as_json:
        typer.secho(f"{tally}\n{components_line(llm)}", dim=True, err=True)
    return failed


def _print_completion(index: int, prompt: str, text: str) -> None:
    typer.secho(f"[{index}] {prompt}", bold=True)
    typer.echo(f"{text}\n")
