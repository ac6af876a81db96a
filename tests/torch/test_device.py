"""Free memory within control groups, and which device a rank gets."""

import pytest
import torch

from enginecore.errors import ConfigurationError
from enginecore_torch.device import cgroup_headrooms, device_of_rank

GIB = 1 << 30


def write(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


def test_version_2_counts_page_cache_as_free(tmp_path):
    write(tmp_path, memory__max=4 * GIB, memory__current=3 * GIB, memory__stat=f"anon 5\ninactive_file {GIB}\nslab 1")
    assert 2 * GIB in cgroup_headrooms(tmp_path)


def test_version_2_without_limit_says_nothing(tmp_path):
    write(tmp_path, memory__max="max", memory__current=3 * GIB)
    assert cgroup_headrooms(tmp_path) == []


def test_version_1(tmp_path):
    write(tmp_path / "memory", memory__limit_in_bytes=2 * GIB, memory__usage_in_bytes=GIB)
    assert GIB in cgroup_headrooms(tmp_path)


def test_more_used_than_allowed_is_nothing_free(tmp_path):
    write(tmp_path, memory__max=GIB, memory__current=2 * GIB)
    assert cgroup_headrooms(tmp_path) == [0]


def test_all_ranks_share_the_cpu():
    assert [device_of_rank("cpu", rank, 4) for rank in range(4)] == [torch.device("cpu")] * 4


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


@pytest.mark.parametrize("name", ["cuda", "auto"])
def test_each_rank_has_a_cuda_device_of_its_own(two_gpus, name):
    assert [device_of_rank(name, rank, 2) for rank in range(2)] == [torch.device("cuda", 0), torch.device("cuda", 1)]


def test_one_rank_may_choose_its_device(two_gpus):
    assert device_of_rank("cuda:1", 0, 1) == torch.device("cuda", 1)


@pytest.mark.parametrize(
    ("name", "ranks", "message"),
    [
        ("cuda", 3, "tensor_parallel_size x pipeline_parallel_size = 3 needs as many CUDA devices, and torch sees 2"),
        ("cuda:1", 2, '"cuda:1" is one device, and each of 2 ranks needs its own'),
    ],
)
def test_too_few_devices_are_refused(two_gpus, name, ranks, message):
    with pytest.raises(ConfigurationError, match=message):
        device_of_rank(name, 0, ranks)
