"""Checks: the rules that every watched call enforces, over all traces."""

from enginecore_conformance.checks import Check
from enginecore_conformance.kv_cache_managers.bench import KVCacheBench

RULES: dict[str, str] = {
    "all_or_nothing": "allocate_slots gives slots for all tokens asked for, or None, and then nothing has changed.",
    "what_fits_is_allocated": "allocate_slots gives None only if too few blocks are free.",
    "allocation_takes_what_it_said": "allocate_slots takes as many free blocks as num_blocks_to_allocate says for the "
    "same arguments, those included that it pins.",
    "a_prefix_stands_first": "The blocks of a prefix are shared, and stand first among those that are given.",
    "blocks_have_one_writer": "A block given out to be written is held by no request: what is referenced is "
    "not evicted.",
    "conservation": "Free and referenced blocks are all blocks; a block is at most once in a table, and ids are in the "
    "pool.",
    "freed_blocks_come_back": "free gives up all of a request's blocks; those that no other holds are free. "
    "To free what holds none does nothing.",
    "freeable_blocks_are_counted": "num_freeable_blocks counts blocks that no other references, and none of keep.",
    "lookups_change_nothing": "get_computed_blocks and peek_cached_tokens say the same, and pin nothing.",
    "the_last_token_is_computed": "A prefix is shorter than the request's known tokens, also if all are cached.",
    "hits_are_those_of_the_model": "A hit holds exactly the request's own tokens, from the first on, block by block.",
    "salts_and_adapters_are_kept_apart": "What was written for another salt or another adapter is no hit.",
    "only_what_is_published_is_hit": "What was not published, or was before a reset, is no hit.",
    "cached_content_is_found": "What was published is found until one of its blocks is given out again.",
    "reset_forgets_all_or_nothing": "reset_prefix_cache forgets everything if no block is referenced; else it gives "
    "False and changes nothing.",
    "stats_agree": "Gauges agree with the pool, counters only grow, and there are no more hits than queries.",
    "its_own_books_hold": "check_invariants() raises nothing.",
    "nothing_is_raised": "Nothing is raised.",
}


def _check(name: str, rule: str) -> Check[KVCacheBench]:
    return Check(name, "kv_cache_manager", frozenset(), rule, lambda bench: bench.require_kept(name))


def _others(bench: KVCacheBench) -> None:
    for name in bench.broken_rules():
        if name not in RULES:
            bench.require_kept(name)


CHECKS: tuple[Check[KVCacheBench], ...] = (
    *(_check(name, rule) for name, rule in RULES.items()),
    Check("nothing_else_breaks", "kv_cache_manager", frozenset(), "No rule breaks that has no check here.", _others),
)
