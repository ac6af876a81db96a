"""Deployments: step costs and KV blocks of a model on cards, from data sheets, without a measurement."""

from dataclasses import dataclass, field

from enginecore.errors import ConfigurationError
from enginecore_simulation.costs import StepCosts
from enginecore_simulation.hardware import Efficiency, Hardware
from enginecore_simulation.shapes import ModelShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """One model on one or more cards of a kind.

    Attributes:
        hardware: The card.
        shape: The model.
        tensor_parallel_size: Cards that share every layer.
        pipeline_parallel_size: Stages of layers, each on cards of its own.
        efficiency: Shares of the data sheet that are reached.

    Raises:
        ConfigurationError: heads or layers cannot be shared out so.
    """

    hardware: Hardware
    shape: ModelShape
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    efficiency: Efficiency = field(default_factory=Efficiency)

    def __post_init__(self) -> None:
        if self.tensor_parallel_size < 1 or self.shape.num_heads % self.tensor_parallel_size:
            raise ConfigurationError(
                f"tensor_parallel_size must divide the model's {self.shape.num_heads} attention heads, got "
                f"{self.tensor_parallel_size}"
            )
        if not 1 <= self.pipeline_parallel_size <= self.shape.num_layers:
            raise ConfigurationError(
                f"pipeline_parallel_size must be between 1 and the model's {self.shape.num_layers} layers, got "
                f"{self.pipeline_parallel_size}"
            )

    @property
    def stage_layers(self) -> tuple[int, ...]:
        """Layers of each stage; the first ones take what is left over."""
        base, extra = divmod(self.shape.num_layers, self.pipeline_parallel_size)
        return tuple(base + (stage < extra) for stage in range(self.pipeline_parallel_size))

    def costs(self) -> StepCosts:
        """The costs of a step that runs through all stages, with no other step in them."""
        shape, card, reached, tp = self.shape, self.hardware, self.efficiency, self.tensor_parallel_size
        parameters = shape.num_active_parameters / tp
        return StepCosts(
            per_step=reached.per_step,
            per_request=reached.per_request,
            weights=parameters * shape.dtype_bytes / (reached.bandwidth * card.bandwidth),
            per_token=2 * parameters / (reached.flops * card.flops),
            rho=reached.rho,
            per_kv_token=self._kv_layer_bytes * shape.num_layers / tp / (reached.kv_bandwidth * card.bandwidth),
            per_attention_pair=4 * shape.num_layers * shape.num_heads * shape.head_dim / tp
            / (reached.attention_flops * card.flops),
            comm_per_step=self._num_all_reduces * reached.per_all_reduce,
            comm_per_token=self._num_all_reduces * self._ring_bytes / (reached.link * card.link),
        )  # fmt: skip

    def kv_page_bytes(self, block_size: int) -> int:
        """A KV block in one layer, on all cards that share it."""
        return self._kv_layer_bytes * block_size

    def num_kv_blocks(self, block_size: int, utilization: float) -> int:
        """KV blocks that the cards hold beside their weights: as many as the fullest stage does.

        Args:
            block_size: Tokens per block.
            utilization: Share of a card's memory that may be used; the rest is for activations and other processes.
        """
        shape, tp = self.shape, self.tensor_parallel_size
        weights = shape.num_parameters * shape.dtype_bytes / shape.num_layers
        page = self.kv_page_bytes(block_size)
        usable = self.hardware.memory * utilization * tp
        return min(max(int((usable - weights * layers) / (page * layers)), 0) for layers in self.stage_layers)

    @property
    def _kv_layer_bytes(self) -> int:
        """A token in one layer, on all cards that share it. A head is held at least once by each card."""
        shape = self.shape
        return shape.kv_bytes_per_layer_token // shape.num_kv_heads * max(shape.num_kv_heads, self.tensor_parallel_size)

    @property
    def _num_all_reduces(self) -> int:
        return 2 * self.shape.num_layers if self.tensor_parallel_size > 1 else 0

    @property
    def _ring_bytes(self) -> float:
        """Bytes that each card sends of one token in one all-reduce around a ring."""
        tp = self.tensor_parallel_size
        return 2 * (tp - 1) / tp * self.shape.hidden_size * self.shape.dtype_bytes
