"""Executors with torch, on the CPU or CUDA, and the kinds of component that they are made of."""

from collections.abc import Iterable

from enginecore.interfaces import Executor
from enginecore.plugin import Component, ComponentSettings, ExecutorContext, KindSpec, hookimpl
from enginecore_torch.attention.interface import AttentionBackend, AttentionContext
from enginecore_torch.kinds import ATTENTION, MODEL
from enginecore_torch.models.interface import Model, ModelContext
from enginecore_torch.settings import AutoAttentionSettings, MultiprocExecutorSettings, SingleExecutorSettings


def make_single(settings: SingleExecutorSettings, context: ExecutorContext) -> Executor:
    """Load the model and return the executor."""
    from enginecore_torch.executor import SingleExecutor

    return SingleExecutor.from_context(settings, context)


def make_multiproc(settings: MultiprocExecutorSettings, context: ExecutorContext) -> Executor:
    """Start the workers, have them load the model, and return the executor."""
    from enginecore_torch.multiproc.executor import MultiprocExecutor

    return MultiprocExecutor(settings, context)


def make_llama(settings: ComponentSettings, context: ModelContext) -> Model:
    """The Llama architecture, without weights."""
    from enginecore_torch.models.llama import LlamaForCausalLM

    return LlamaForCausalLM(context)


def make_auto_attention(settings: AutoAttentionSettings, context: AttentionContext) -> AttentionBackend:
    """The first attention backend that can serve the model."""
    from enginecore_torch.attention.auto import choose_attention

    return choose_attention(settings, context)


def make_native_attention(settings: ComponentSettings, context: AttentionContext) -> AttentionBackend:
    """Attention by the C kernels."""
    from enginecore_torch.attention.native import NativeAttention

    return NativeAttention(context.needs)


def make_torch_attention(settings: ComponentSettings, context: AttentionContext) -> AttentionBackend:
    """Attention by torch."""
    from enginecore_torch.attention.sdpa import TorchAttention

    return TorchAttention(context.needs)


@hookimpl
def enginecore_kinds() -> Iterable[KindSpec]:
    """The kinds of this plugin."""
    return [MODEL, ATTENTION]


@hookimpl
def enginecore_components() -> Iterable[Component]:
    """The components of this plugin."""
    return [
        Component(
            kind="executor",
            name="single",
            factory=make_single,
            settings=SingleExecutorSettings,
            summary="runs a model with torch in this process, on the CPU or one CUDA device",
        ),
        Component(
            kind="executor",
            name="multiproc",
            factory=make_multiproc,
            settings=MultiprocExecutorSettings,
            summary="runs a model with torch in worker processes, divided by layers, heads or both",
        ),
        Component(
            kind="model",
            name="LlamaForCausalLM",
            factory=make_llama,
            summary="RMS norms, rotary embeddings, grouped-query attention, gated SiLU MLP",
        ),
        Component(
            kind="attention",
            name="auto",
            factory=make_auto_attention,
            settings=AutoAttentionSettings,
            summary="the first backend of an order that can serve the model",
        ),
        Component(
            kind="attention",
            name="native",
            factory=make_native_attention,
            summary="a C kernel that reads the KV cache in place, on the CPU; needs a C compiler",
        ),
        Component(
            kind="attention",
            name="torch",
            factory=make_torch_attention,
            summary="torch's scaled dot product attention over gathered keys and values, on every device",
        ),
    ]
