"""Settings of the oracle executor."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from enginecore.plugin import ComponentSettings


class Fault(BaseModel):
    """One thing to go wrong, once.

    Attributes:
        kind: `drop` leaves the row of the request out of the step's output; `error` names the request in its
            `errors`; `reject` does so whether it is sampled or not; `unknown` adds a row for an id that was not
            scheduled; `fail` makes the step's future raise; `die` does the same and reports the executor as dead.
        request_id: Request of the row. `drop` and `error` wait for a step that samples it, `reject`
            for one that computes tokens of it.
        step: Nothing happens before this step.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["drop", "error", "reject", "unknown", "fail", "die"]
    request_id: str = ""
    step: int = 0

    @model_validator(mode="after")
    def _check_request_id(self) -> "Fault":
        if (self.kind in ("fail", "die")) == bool(self.request_id):
            raise ValueError(f"a fault of kind {self.kind!r} with request_id {self.request_id!r}: "
                             "drop, error, reject and unknown need a request_id, fail and die have none")  # fmt: skip
        return self


class OracleSettings(ComponentSettings):
    """Settings of the oracle.

    Attributes:
        depth: Batches in flight at most.
        feeds_tokens: A request may be scheduled again before its sampled token has come back.
        in_order: False: what a step writes may land any time until it has returned, also after what later steps write.
        two_phase: All steps that compute tokens answer None, and `sample_tokens` gives their output; without it those
            whose plan sets `defer_sampling`.
        verify: Check each plan against its contract and each slot that is read; a violation is an InvariantError.
            Without it a fault is seen only as a wrong token.
        read_back: False: tokens are made from what the worker remembers, not from what its blocks hold, so a fault is
            not seen at all. For measuring what everything else costs; needs verify = false.
        stages: Pipeline stages. Each step runs through all of them, and each stage runs one step at a time.
        step_time: Seconds on the engine's clock that a step takes in a stage. Steps run one after another.
        token_time: Seconds more for each token that it computes.
        vocab_size: Token ids are below this.
        eos_token_ids: Tokens with which the model ends its output; each turns up once in `vocab_size` tokens.
        max_model_len: The longest context of the model, in tokens.
        kv_memory: Bytes reported as free for the KV cache. One token takes 8.
        non_causal: Mark the KV cache as one of a prefix-LM.
        record: Keep every plan and its output, for `collective_rpc("get_history")`.
        faults: Faults to inject.
    """

    depth: int = Field(default=1, ge=1)
    feeds_tokens: bool = False
    in_order: bool = True
    two_phase: bool = False
    verify: bool = True
    read_back: bool = True
    stages: int = Field(default=1, ge=1)
    step_time: float = Field(default=0.0, ge=0)
    token_time: float = Field(default=0.0, ge=0)
    vocab_size: int = Field(default=256, ge=2)
    eos_token_ids: tuple[int, ...] = (0,)
    max_model_len: int = Field(default=4096, ge=1)
    kv_memory: int = Field(default=1 << 20, ge=0)
    non_causal: bool = False
    record: bool = False
    faults: tuple[Fault, ...] = ()

    @model_validator(mode="after")
    def _check_eos(self) -> "OracleSettings":
        if outside := [token for token in self.eos_token_ids if not 0 <= token < self.vocab_size]:
            raise ValueError(f"eos_token_ids must be below vocab_size = {self.vocab_size}, got {outside}")
        return self

    @model_validator(mode="after")
    def _check_read_back(self) -> "OracleSettings":
        if self.verify and not self.read_back:
            raise ValueError("read_back = false needs verify = false: there is nothing that could be verified")
        return self

    @model_validator(mode="after")
    def _check_order(self) -> "OracleSettings":
        if self.two_phase and not self.in_order:
            raise ValueError("two_phase = true needs in_order = true: what is sampled later cannot run ahead")
        return self
