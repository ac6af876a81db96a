"""The KV cache managers and orders of eviction that come with enginecore keep their contracts."""

import pytest

from enginecore_conformance import parametrize, prepare


@parametrize("kv_cache_manager:paged")
def test_paged(check):
    check()


@parametrize("kv_cache_manager:radix")
def test_radix(check):
    check()


@pytest.mark.full
@pytest.mark.parametrize("eviction", ["lfu", "fifo", "ttl"])
@pytest.mark.parametrize("manager", ["paged", "radix"])
def test_beside_another_order_of_eviction(manager, eviction):
    for check in prepare(f"kv_cache_manager:{manager}", engine={"eviction.use": eviction}):
        check()


@pytest.mark.parametrize("name", ["lru", pytest.param("lfu", marks=pytest.mark.full),
                                  pytest.param("fifo", marks=pytest.mark.full), "ttl"])  # fmt: skip
def test_evictions(name):
    for check in prepare(f"eviction:{name}"):
        check()
