"""Free memory within control groups."""

from enginecore_torch.device import cgroup_headrooms

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
