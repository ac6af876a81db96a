"""Matrix products with weights in the layout that is fastest where they run.

On the CPU a weight is re-ordered once into oneDNN's own layout. Plain `F.linear` re-orders it in every call: on two
Zen 5 cores the products of one SmolLM2-135M step in bfloat16 take, in ms (plain / packed), 12.0 / 4.1 for 1 row,
14.2 / 6.2 for 8, 37.4 / 23.4 for 64 and 173 / 154 for 512; in float32 30.2 / 9.3, 46.9 / 11.6, 128 / 43.5, 691 / 304.
"""

from collections.abc import Callable, Sequence

import torch
from torch.nn import functional

Product = Callable[[torch.Tensor], torch.Tensor]
"""[rows, in_features] to [rows, out_features]."""


def make_product(weight: torch.Tensor, bias: torch.Tensor | None) -> Product:
    """`x @ weight.T + bias`. May keep its own copy of the weight, in another layout, instead of the one given."""
    pack = getattr(torch.ops.mkldnn, "_reorder_linear_weight", None)  # private to torch: plain if a version lacks it
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

    Each part is copied into its place as it arrives; with the last one the weight takes its final layout, so that no
    more than one weight is ever held twice.
    """

    def __init__(
        self, in_features: int, out_features: Sequence[int], *, bias: bool, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.in_features = in_features
        self.out_features = tuple(out_features)
        self.has_bias = bias
        self._dtype, self._device = dtype, device
        self._tensors: dict[str, torch.Tensor] = {}  # while loading
        self._missing = len(self.out_features) * (2 if bias else 1)
        self._product: Product = _not_loaded

    def load_weight(self, part: int, tensor: torch.Tensor) -> None:
        """Take the rows of one part: [out_features[part], in_features]. Each part comes once."""
        self._load("weight", part, tensor, (sum(self.out_features), self.in_features))

    def load_bias(self, part: int, tensor: torch.Tensor) -> None:
        """Take the bias of one part: [out_features[part]]. Each part comes once."""
        self._load("bias", part, tensor, (sum(self.out_features),))

    def use_weight(self, weight: torch.Tensor) -> None:
        """Use a weight that lives elsewhere (tied embeddings) instead of loading one. There is no bias then."""
        self._product = make_product(weight, None)

    def _load(self, kind: str, part: int, tensor: torch.Tensor, shape: tuple[int, ...]) -> None:
        if kind not in self._tensors:
            self._tensors[kind] = torch.empty(shape, dtype=self._dtype, device=self._device)
        first = sum(self.out_features[:part])
        self._tensors[kind].narrow(0, first, self.out_features[part]).copy_(tensor)
        self._missing -= 1
        if not self._missing:
            self._product = make_product(self._tensors["weight"], self._tensors.get("bias"))
            self._tensors.clear()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[rows, in_features] to [rows, sum(out_features)]."""
        return self._product(x)
