"""The command `enginecore chat`: a conversation, at a terminal or from a pipe."""

import contextlib
import json
from collections.abc import Generator, Iterable
from contextlib import closing
from typing import Annotated, Any

import typer

from enginecore.cli.options import AsJson, ConfigFile, Overrides
from enginecore.cli.report import Tally, as_plain, components_line, load_llm
from enginecore.cli.sampling_options import MaxTokens, Seed, Stop, Temperature, TopK, TopP
from enginecore.cli.streams import standard_input
from enginecore.errors import EngineCoreError, InvalidRequestError
from enginecore.frontend.llm import LLM
from enginecore.frontend.outputs import RequestOutput
from enginecore.sampling import SamplingParams

System = Annotated[str | None, typer.Option(help="System message, before the first question.", show_default=False)]


def chat(
    system: System = None,
    max_tokens: MaxTokens = 512,
    temperature: Temperature = 0.2,
    top_p: TopP = 0.9,
    top_k: TopK = 0,
    seed: Seed = None,
    stop: Stop = None,
    config: ConfigFile = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Talk with the model.

    Each line is a message; /reset forgets the conversation, /exit ends it.

    Reads from a pipe too, and then prints only the answers. With --json: one object per answer.
    """
    params = SamplingParams(
        max_tokens=max_tokens, temperature=temperature, top_p=top_p, top_k=top_k, seed=seed, stop=tuple(stop or ())
    )
    source = standard_input()
    with load_llm(config, overrides) as llm:
        conversation = Conversation(llm, params, system)
        if source.isatty() and not as_json:
            _talk(conversation, components_line(llm))
        else:
            _answer_lines(source, conversation, as_json)


class Conversation:
    """Messages so far, and the model that answers them.

    Attributes:
        num_turns: Questions that were answered since the start or the last reset.
    """

    def __init__(self, llm: LLM, params: SamplingParams, system: str | None) -> None:
        self._llm = llm
        self._params = params
        self._system: list[dict[str, Any]] = [] if system is None else [{"role": "system", "content": system}]
        self.reset()

    def reset(self) -> None:
        """Forget all but the system message."""
        self._messages = list(self._system)
        self.num_turns = 0

    def ask(self, question: str) -> Generator[RequestOutput, None, None]:
        """The answer as it is written. Only an answer that is complete becomes part of the
        conversation.

        Raises:
            InvalidRequestError: the conversation does not fit any more, or the chat template
                refuses it.
            EngineCoreError: the request failed.
        """
        messages = [*self._messages, {"role": "user", "content": question}]
        answer: list[str] = []
        with closing(self._llm.stream(self._llm.render_chat(messages), self._params)) as outputs:
            for _, output in outputs:
                if output.error is not None:
                    raise EngineCoreError(output.error)
                answer.append(output.outputs[0].text)
                yield output
        self._messages = [*messages, {"role": "assistant", "content": "".join(answer)}]
        self.num_turns += 1


def _answer_lines(lines: Iterable[str], conversation: Conversation, as_json: bool) -> None:
    """Answer every line; the first one that cannot be answered ends it."""
    for line in lines:
        question = line.strip()
        if question == "/exit":
            return
        if question == "/reset":
            conversation.reset()
        elif question:
            _answer(conversation, question, as_json)


def _answer(conversation: Conversation, question: str, as_json: bool) -> None:
    turn = conversation.num_turns
    with closing(conversation.ask(question)) as outputs:
        if not as_json:
            for output in outputs:
                typer.echo(output.outputs[0].text, nl=output.finished)
            return
        parts = list(outputs)
    last = parts[-1]
    completion = last.outputs[0]
    completion.text = "".join(part.outputs[0].text for part in parts)
    completion.token_ids = [token_id for part in parts for token_id in part.outputs[0].token_ids]
    typer.echo(json.dumps(as_plain(turn, question, last), ensure_ascii=False))


def _talk(conversation: Conversation, about: str) -> None:
    """Ask and answer at a terminal. Ctrl-C ends an answer, and twice the program; so does the end
    of input.
    """
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - gives input() a history
    typer.secho(f"{about}\n/reset forgets the conversation, /exit ends it.", dim=True)
    while (question := _next_question()) not in (None, "/exit"):
        if question == "/reset":
            conversation.reset()
            typer.secho("Forgotten.", dim=True)
        elif question:
            _show_answer(conversation, question)


def _next_question() -> str | None:
    """The next line of input; None at the end."""
    try:
        return input("you> ").strip()
    except (EOFError, KeyboardInterrupt):
        typer.echo()
        return None


def _show_answer(conversation: Conversation, question: str) -> None:
    tally = Tally()
    try:
        with closing(conversation.ask(question)) as outputs:
            for output in outputs:
                typer.echo(output.outputs[0].text, nl=output.finished)
                if output.finished:
                    tally.add(output)
                    cached, asked = output.num_cached_tokens, len(output.prompt_token_ids)
                    typer.secho(f"{tally}, {cached} of {asked} prompt tokens cached", dim=True)
    except KeyboardInterrupt:
        typer.secho("\nInterrupted: neither the question nor the answer is kept.", dim=True)
    except InvalidRequestError as error:
        typer.secho(f"{error} (/reset starts again)", fg="red", err=True)
