"""Matrix products with weights in the layout that is fastest where they run.

On the CPU a weight is re-ordered once into oneDNN's own layout. Plain `F.linear` re-orders it in
every call: on two Zen 5 cores the products of one SmolLM2-135M step in bfloat16 take, in ms (plain
/ packed), 12.0 / 4.1 for 1 row, 14.2 / 6.2 for 8, 37.4 / 23.4 for 64 and 173 / 154 for 512; in
float32 30.2 / 9.3, 46.9 / 11.6, 128 / 43.5, 691 / 304.
"""

import itertools
from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch.nn import functional

from enginecore_torch.models.interface import ModelContext
from enginecore_torch.models.weights import Axis, CheckpointTensor

Product = Callable[[torch.Tensor], torch.Tensor]
"""[rows, in_features] to [rows, out_features]."""


def make_product(weight: torch.Tensor, bias: torch.Tensor | None) -> Product:
    """`x @ weight.T + bias`, perhaps with a copy of the weight in another layout."""
    # private to torch: plain if a version lacks them
    pack = getattr(torch.ops.mkldnn, "_reorder_linear_weight", None)
    linear = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
    if pack is None or linear is None or not _onednn_runs(weight):
        return lambda x: functional.linear(x, weight, bias)
    packed, product = pack(weight), linear.default
    return lambda x: product(x, packed, bias, "none", [], "")


def _onednn_runs(weight: torch.Tensor) -> bool:
    if weight.device.type != "cpu" or not torch._C._has_mkldnn:
        return False
    if weight.dtype is torch.float32:
        return True
    supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return weight.dtype is torch.bfloat16 and supported is not None and supported()


def _not_loaded(x: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("this Linear has no weight yet")


class Linear:
    """A product whose rows come from one or more checkpoint tensors, stacked.

    Each part is copied into its place as it arrives; with the last one the weight takes its final
    layout, so that no more than one weight is ever held twice. A rank that holds a part of the
    input adds the bias only if it leads its
    stage: the ranks' products are summed.
    """

    def __init__(self, context: ModelContext, inputs: Axis, outputs: Mapping[str, Axis], *, bias: bool = False) -> None:
        """Lay out a product without weights.

        Args:
            context: The context of the model.
            inputs: Features of the input.
            outputs: Features of each part of the output, by the name of its tensor without
                ".weight" or ".bias".
            bias: Whether the checkpoint has biases.
        """
        self._inputs, self._outputs, self._bias = inputs, dict(outputs), bias
        self._adds_bias = bias and (inputs.is_whole or context.shard.leads)
        self._dtype, self._device = context.dtype, context.device
        self._loading: dict[str, torch.Tensor] = {}
        self._missing = len(outputs) * (2 if self._adds_bias else 1)
        self._product: Product = _not_loaded

    @property
    def tensors(self) -> dict[str, CheckpointTensor]:
        """The checkpoint's tensors of this product."""
        found = {}
        for name, rows in self._outputs.items():
            load = partial(self._load, "weight", name)
            found[f"{name}.weight"] = CheckpointTensor((rows, self._inputs), load)
            if self._bias:
                load_bias = partial(self._load, "bias", name) if self._adds_bias else None
                found[f"{name}.bias"] = CheckpointTensor((rows,), load_bias)
        return found

    def load_weight(self, name: str, tensor: torch.Tensor) -> None:
        """Load the weight of one part, once: [rows, features of the input] on this rank."""
        self._load("weight", name, tensor)

    def use_weight(self, weight: torch.Tensor) -> None:
        """Use a weight that another part holds (tied embeddings), without a bias."""
        self._product = make_product(weight, None)

    def _load(self, kind: str, name: str, tensor: torch.Tensor) -> None:
        """Copy the weight or the bias of a part to its rows."""
        sizes = [len(axis.held) for axis in self._outputs.values()]
        ends = dict(zip(self._outputs, itertools.accumulate(sizes), strict=True))
        if kind not in self._loading:
            shape = (max(ends.values()), *tensor.shape[1:])
            self._loading[kind] = torch.empty(shape, dtype=self._dtype, device=self._device)
        self._loading[kind][ends[name] - len(tensor) : ends[name]].copy_(tensor)
        self._missing -= 1
        if not self._missing:
            self._product = make_product(self._loading["weight"], self._loading.get("bias"))
            self._loading.clear()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[rows, features of the input] to [rows, features of all parts], those on this rank."""
        return self._product(x)
