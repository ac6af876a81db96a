"""How a model is shared out: everything is held once, KV groups stay together, and what cannot be is refused."""

import itertools

import pytest

from enginecore.errors import ConfigurationError
from enginecore_torch.parallel.layout import Layout, shard_of, split
from tests.torch.tiny import make_hf_model, make_source


def config_of(**changes):
    return make_source(make_hf_model(num_hidden_layers=1), **changes).config


@pytest.mark.parametrize(
    ("size", "parts", "lengths"), [(8, 2, [4, 4]), (3, 2, [2, 1]), (7, 3, [3, 2, 2]), (2, 2, [1, 1]), (5, 1, [5])]
)
def test_pieces_follow_one_another_and_differ_by_one(size, parts, lengths):
    pieces = split(size, parts)
    assert [len(piece) for piece in pieces] == lengths
    assert list(itertools.chain(*pieces)) == list(range(size))


@pytest.mark.parametrize(
    ("heads", "kv_heads", "ranks", "expected"),
    [
        (8, 4, 2, [((0, 4), (0, 2)), ((4, 8), (2, 4))]),
        (9, 3, 2, [((0, 6), (0, 2)), ((6, 9), (2, 3))]),  # SmolLM2: the groups do not divide
        (6, 6, 4, [((0, 2), (0, 2)), ((2, 4), (2, 4)), ((4, 5), (4, 5)), ((5, 6), (5, 6))]),
        (6, 1, 2, [((0, 3), (0, 1)), ((3, 6), (0, 1))]),  # one KV head for both
        (8, 2, 4, [((0, 2), (0, 1)), ((2, 4), (0, 1)), ((4, 6), (1, 2)), ((6, 8), (1, 2))]),
        (9, 3, 4, [((0, 2), (0, 1)), ((2, 3), (0, 1)), ((3, 6), (1, 2)), ((6, 9), (2, 3))]),
        (4, 2, 3, [((0, 1), (0, 1)), ((1, 2), (0, 1)), ((2, 4), (1, 2))]),
    ],
)
def test_query_heads_stay_with_their_kv_heads(heads, kv_heads, ranks, expected):
    config = config_of(num_attention_heads=heads, num_key_value_heads=kv_heads)
    layout = Layout(tensor=ranks)
    shards = [shard_of(config, layout, rank) for rank in range(ranks)]
    assert [
        ((s.query_heads.start, s.query_heads.stop), (s.kv_heads.start, s.kv_heads.stop)) for s in shards
    ] == expected


@pytest.mark.parametrize(("tensor", "pipeline"), [(1, 1), (2, 1), (1, 2), (3, 2), (2, 3)])
def test_every_part_is_held_once_by_every_stage_or_rank(tensor, pipeline):
    config = config_of(
        num_attention_heads=9, num_key_value_heads=3, num_hidden_layers=7, vocab_size=101, intermediate_size=77
    )
    layout = Layout(tensor, pipeline)
    layout.check(config)
    shards = [shard_of(config, layout, rank) for rank in range(layout.num_ranks)]
    stages = [shards[layout.ranks_of(stage).start : layout.ranks_of(stage).stop] for stage in range(pipeline)]
    assert [number for stage in stages for number in stage[0].layers] == list(range(7))
    for stage in stages:
        assert len({shard.layers for shard in stage}) == 1
        assert [shard.leads for shard in stage] == [True] + [False] * (tensor - 1)
        for name, size in (("inner", 77), ("vocab", 101), ("query_heads", 9), ("kv_heads", 3)):
            assert [n for shard in stage for n in getattr(shard, name)] == list(range(size))
        assert {shard.all_vocab for shard in stage} == {tuple(shard.vocab for shard in stage)}
    assert [shard.is_first for shard in shards] == [True] * tensor + [False] * (tensor * (pipeline - 1))
    assert [shard.is_last for shard in shards] == [False] * (tensor * (pipeline - 1)) + [True] * tensor
    assert shards[layout.output_rank].is_last
    assert shards[layout.output_rank].leads


def test_the_last_stage_never_has_more_layers_than_another():
    config = config_of(num_hidden_layers=11)
    layers = [len(shard_of(config, Layout(pipeline=3), rank).layers) for rank in range(3)]
    assert layers == [4, 4, 3]


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (Layout(tensor=7), "tensor_parallel_size = 7, but at most 6 ranks can share this model: it has 6 query heads"),
        (Layout(pipeline=4), "pipeline_parallel_size = 4, but the model has 3 layers"),
    ],
)
def test_a_model_that_is_too_small_is_refused(layout, message):
    with pytest.raises(ConfigurationError, match=message):
        layout.check(config_of(num_hidden_layers=3))
