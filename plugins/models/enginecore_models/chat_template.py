"""The chat templates of a model, rendered as transformers does, without transformers."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from enginecore.errors import InvalidRequestError, ModelError


class ChatTemplate:
    """The templates of one model, compiled when they are first used.

    Templates are foreign code, so they run in a sandbox.

    Args:
        templates: Jinja source by name; "default" is used, "tool_use" where there is one and tools
            are given.
        special_tokens: Texts such as "bos_token" that templates refer to.
        origin: Where the templates are from, for messages.
    """

    def __init__(self, templates: Mapping[str, str], special_tokens: Mapping[str, str], origin: str) -> None:
        self._templates = templates
        self._special_tokens = special_tokens
        self._origin = origin

    def render(self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool, **variables: Any) -> str:
        """The prompt for a conversation.

        Raises:
            InvalidRequestError: there is no template, or it refuses the messages.
            ModelError: the template itself is broken.
        """
        name = "tool_use" if variables.get("tools") and "tool_use" in self._templates else "default"
        if name not in self._templates:
            named = f", only for {', '.join(sorted(self._templates))}" if self._templates else ""
            raise InvalidRequestError(
                f"the tokenizer of {self._origin} has no chat template{named}: render the conversation to text "
                "yourself, or take a model that is made for chat"
            )
        defaults = {"tools": None, "documents": None, **self._special_tokens}
        values = {**defaults, **variables, "messages": messages, "add_generation_prompt": add_generation_prompt}
        template = self._compiled(name)
        try:
            return template.render(values)
        # a template meets messages of any shape, and fails on them in any way
        except Exception as error:
            raise InvalidRequestError(f"the chat template of {self._origin} refuses these messages: {error}") from error

    def _compiled(self, name: str) -> jinja2.Template:
        try:
            return self._environment.from_string(self._templates[name])
        except jinja2.TemplateSyntaxError as error:
            raise ModelError(
                f"line {error.lineno} of the chat template of {self._origin} is broken: {error}"
            ) from error

    @cached_property
    def _environment(self) -> ImmutableSandboxedEnvironment:
        extensions: list[str | type[Extension]] = ["jinja2.ext.loopcontrols", _GenerationBlock]
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = _strftime_now
        return environment


class _GenerationBlock(Extension):
    """`{% generation %}`: marks the assistant's words for training. Here it is its body."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True)).set_lineno(line)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Plain JSON: jinja's own filter escapes HTML, which models were not trained on."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)
