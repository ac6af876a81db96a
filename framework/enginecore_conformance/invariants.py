"""Invariants of the engine, checked through public members. A broken one raises InvariantError."""

from enginecore.errors import InvariantError
from enginecore.interfaces import Executor, KVCacheManager, Scheduler


def check_conservation(scheduler: Scheduler, kv_cache_manager: KVCacheManager) -> None:
    """Every block is free or referenced by its holders, and no request holds one twice."""
    scheduler.check_invariants()
    kv_cache_manager.check_invariants()
    held = set()
    for request in scheduler.unfinished_requests:
        blocks = [block for group in kv_cache_manager.get_block_ids(request) for block in group]
        if len(blocks) != len(set(blocks)):
            raise InvariantError(f"request {request.request_id!r} holds a block twice: {blocks}")
        held.update(blocks)
    if len(held) + kv_cache_manager.num_free_blocks > kv_cache_manager.num_blocks:
        raise InvariantError(
            f"{len(held)} blocks held and {kv_cache_manager.num_free_blocks} free, of {kv_cache_manager.num_blocks}"
        )


def check_quiescence(scheduler: Scheduler, kv_cache_manager: KVCacheManager, executor: Executor) -> None:
    """When all requests have ended nothing is left of them: no block, no entry in any map, in no
    worker.

    The executor's workers must answer `get_request_ids`, as the oracle's do.
    """
    if scheduler.has_requests() or scheduler.unfinished_requests:
        left = [request.request_id for request in scheduler.unfinished_requests]
        raise InvariantError(f"the scheduler is not done; unfinished: {left}")
    if kv_cache_manager.num_free_blocks != kv_cache_manager.num_blocks:
        raise InvariantError(
            f"{kv_cache_manager.num_blocks - kv_cache_manager.num_free_blocks} blocks are still referenced"
        )
    for rank, known in enumerate(executor.collective_rpc("get_request_ids")):
        if known:
            raise InvariantError(f"worker {rank} still knows {known}")
    scheduler.check_invariants()
