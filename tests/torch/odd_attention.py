"""Attention backends as third parties add them."""

from enginecore.plugin import Component
from enginecore_torch.attention.sdpa import TorchAttention


class RecordedAttention(TorchAttention):
    """torch's, under another name."""

    name = "recorded"


class HalfAttention(TorchAttention):
    """One that cannot serve float32."""

    name = "half"

    @classmethod
    def objections(cls, needs):
        return [f"it needs float16, and the dtype is {needs.dtype}", "it needs a better day"]


def make_recorded(settings, context):
    return RecordedAttention(context.needs)


def make_half(settings, context):
    return HalfAttention(context.needs)


RECORDED = Component(kind="attention", name="recorded", factory=make_recorded, summary="torch's, under another name")
HALF = Component(kind="attention", name="half", factory=make_half, summary="not for float32")
