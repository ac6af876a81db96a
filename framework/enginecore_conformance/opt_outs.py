"""Opt-outs, read from a command line."""

from collections.abc import Iterable

from enginecore.errors import ConfigurationError


def parse_opt_outs(texts: Iterable[str]) -> dict[str, str]:
    """Reasons by name of the check, from texts such as "wait_is_bounded=it starves on purpose".

    Raises:
        ConfigurationError: one has no reason.
    """
    opt_outs = {}
    for text in texts:
        name, _, reason = text.partition("=")
        if not reason.strip():
            raise ConfigurationError(
                f"opt-out {text!r}: write CHECK=REASON, such as 'wait_is_bounded=it starves on purpose'"
            )
        opt_outs[name.strip()] = reason.strip()
    return opt_outs
