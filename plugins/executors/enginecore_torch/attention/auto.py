"""The attention backend `auto`: the first of several that can serve the model."""

import logging

from enginecore.errors import ConfigurationError
from enginecore_torch.attention.interface import AttentionBackend, AttentionContext
from enginecore_torch.settings import AutoAttentionSettings

logger = logging.getLogger(__name__)


def choose_attention(settings: AutoAttentionSettings, context: AttentionContext) -> AttentionBackend:
    """The first backend of the settings' order that can serve the needs.

    Logs why those before it cannot.

    Raises:
        ConfigurationError: none can; gives the objections of all.
    """
    passed_over: list[str] = []
    for name in settings.order:
        try:
            backend: AttentionBackend = context.catalog.build("attention", name, context)
        except ConfigurationError as error:
            passed_over.append(str(error))
            continue
        _report(name, passed_over, context)
        return backend
    raise ConfigurationError(f"no backend in attention.auto.order can serve this model: {'; '.join(passed_over)}")


def _report(chosen: str, passed_over: list[str], context: AttentionContext) -> None:
    """A warning on the CPU, where a faster backend may lack nothing but a compiler."""
    if passed_over:
        level = logging.WARNING if context.needs.device.type == "cpu" else logging.INFO
        logger.log(level, "attention: %s (%s)", chosen, "; ".join(passed_over))
