"""Settings of the executors and of the attention backend `auto`."""

from typing import Literal

from pydantic import Field

from enginecore.plugin import ComponentSettings


class SingleExecutorSettings(ComponentSettings):
    """Options of the executor `single`.

    Attributes:
        ops: The operations between matrix products. "native" are C kernels (CPU; they need a C
            compiler), "torch" runs everywhere; "auto" is native where it works.
        num_threads: Threads on the CPU, for the whole process. None: one per physical core that no
            other process keeps busy at start-up, or the number in OMP_NUM_THREADS.
    """

    ops: Literal["auto", "native", "torch"] = "auto"
    num_threads: int | None = Field(default=None, ge=1)


class MultiprocExecutorSettings(SingleExecutorSettings):
    """Options of the executor `multiproc`, beside those of `single`, which hold for each rank.

    Attributes:
        tensor_parallel_size: Ranks that share every layer.
        pipeline_parallel_size: Stages, each with layers of its own, that work on different steps at
            a time.
        overlap: Whether a step is sent while the one before it runs. "auto" and "on": as many in
            flight as there are pipeline stages, two with one stage; "off": one. With "auto", one
            too where everything runs on the CPU and the workers leave none free for scheduling.
        execute_timeout: Seconds after which a step has failed.
        startup_timeout: Seconds after which loading has failed.
    """

    tensor_parallel_size: int = Field(default=1, ge=1)
    pipeline_parallel_size: int = Field(default=1, ge=1)
    overlap: Literal["auto", "on", "off"] = "auto"
    execute_timeout: float = Field(default=300.0, gt=0)
    startup_timeout: float = Field(default=600.0, gt=0)


class AutoAttentionSettings(ComponentSettings):
    """Options of the attention backend `auto`.

    Attributes:
        order: Backends in order of preference: the first that can serve the model is taken.
    """

    order: tuple[str, ...] = Field(default=("native", "torch"), min_length=1)
