"""What stands beside a tokenizer.json: special tokens and chat templates."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from tokenizers import AddedToken

from enginecore.errors import ModelError
from enginecore_models.config import CONFIG_FILE, GENERATION_CONFIG_FILE

TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
SPECIAL_TOKENS_MAP_FILE = "special_tokens_map.json"
CHAT_TEMPLATE_FILE = "chat_template.jinja"
CHAT_TEMPLATES_FOLDER = "additional_chat_templates"


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """What tokenizer_config.json and its neighbours say.

    Attributes:
        special_tokens: Text of each special token that has a role, e.g. "eos_token".
        added_tokens: Tokens that the tokenizer must have, the special ones among them.
        chat_templates: Jinja source by name, mostly one named "default"; may be empty.
        eos_token_id: What ends a text by config.json or generation_config.json, for a tokenizer
            that names no EOS.
    """

    special_tokens: Mapping[str, str]
    added_tokens: tuple[AddedToken, ...]
    chat_templates: Mapping[str, str]
    eos_token_id: int | None


def read_tokenizer_config(folder: Path) -> TokenizerConfig:
    """What stands in a folder beside tokenizer.json. No file is required.

    Raises:
        ModelError: a file is broken; names it.
    """
    file = folder / TOKENIZER_CONFIG_FILE
    config = _read(file)
    if "added_tokens_decoder" not in config:  # written by older versions: the map has the last word
        config |= _read(folder / SPECIAL_TOKENS_MAP_FILE)
    extra = config.get("extra_special_tokens") or config.get("additional_special_tokens") or []
    if isinstance(extra, dict):
        config |= extra
        extra = []
    named = {role: token for role, token in config.items() if role.endswith("_token") and isinstance(token, str | dict)}
    decoder = config.get("added_tokens_decoder") or {}
    try:
        special = [_added_token(token, special=True) for token in [*named.values(), *extra]]
        added = [_added_token(decoder[token_id]) for token_id in sorted(decoder, key=int)]
        return TokenizerConfig(
            special_tokens={role: _content(token) for role, token in named.items()},
            added_tokens=(*added, *special),
            chat_templates=_chat_templates(folder, config.get("chat_template")),
            eos_token_id=_eos_token_id(folder),
        )
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise ModelError(f"{file} cannot be used ({type(error).__name__}: {error})") from error


def _read(file: Path) -> dict[str, Any]:
    if not file.exists():
        return {}
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ModelError(f"{file} cannot be used: {error}") from error


def _content(token: str | Mapping[str, Any]) -> str:
    return token if isinstance(token, str) else str(token["content"])


def _added_token(token: str | Mapping[str, Any], special: bool = False) -> AddedToken:
    if isinstance(token, str):
        return AddedToken(token, special=special, normalized=not special)
    flags = {name: bool(token[name]) for name in ("single_word", "lstrip", "rstrip", "normalized") if name in token}
    return AddedToken(_content(token), special=special or bool(token.get("special")), **flags)


def _chat_templates(folder: Path, in_config: str | list[Mapping[str, str]] | None) -> dict[str, str]:
    """Templates by name; files go before what tokenizer_config.json says."""
    files = {file.stem: file for file in (folder / CHAT_TEMPLATES_FOLDER).glob("*.jinja")}
    if (folder / CHAT_TEMPLATE_FILE).exists():
        files["default"] = folder / CHAT_TEMPLATE_FILE
    if files:
        return {name: file.read_text(encoding="utf-8") for name, file in files.items()}
    if isinstance(in_config, list):
        return {template["name"]: template["template"] for template in in_config}
    return {} if in_config is None else {"default": in_config}


def _eos_token_id(folder: Path) -> int | None:
    for name in (GENERATION_CONFIG_FILE, CONFIG_FILE):
        eos = _read(folder / name).get("eos_token_id")
        if eos is not None:
            return int(eos[0] if isinstance(eos, list) else eos)
    return None
