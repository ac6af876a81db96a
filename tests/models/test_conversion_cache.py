"""Converted copies: made once, checked, rebuilt when damaged, safe when processes race, done without if need be."""

import logging
import math
import os
import subprocess
import sys
import threading
import time

import pytest
import torch

from enginecore.errors import ModelError
from enginecore_models.cache import cache_root, cached_folder
from enginecore_models.source import find_model
from enginecore_models.tokenizer import load_tokenizer


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ENGINECORE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "converted"


def total(path, dtype=torch.float32):
    return math.fsum(weight.double().abs().sum().item() for _, weight in find_model(str(path)).weights(dtype))


def write_content(folder):
    (folder / "file").write_text("content")


def names(cache):
    return sorted(path.name for path in cache.iterdir() if path.name != ".lock")


def parts(cache):
    return sorted(name.split("-", 2)[2] for name in names(cache))


def test_a_copy_is_made_once_per_dtype(tiny_gguf, own_cache):
    first = total(tiny_gguf)
    assert parts(own_cache) == ["config", "weights-float32"]
    made = {file: file.stat().st_mtime_ns for file in own_cache.rglob("*")}
    assert total(tiny_gguf) == first
    assert {file: file.stat().st_mtime_ns for file in own_cache.rglob("*")} == made
    total(tiny_gguf, torch.bfloat16)
    assert parts(own_cache) == ["config", "weights-bfloat16", "weights-float32"]


def test_a_copy_is_a_folder_that_transformers_loads(tiny_gguf, own_cache, llama):
    from transformers import AutoModelForCausalLM

    total(tiny_gguf)
    (folder,) = own_cache.glob("*-weights-float32")
    loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict()
    assert all(torch.equal(loaded[name], weight) for name, weight in llama.state_dict().items())


def test_another_content_is_another_copy(tiny_gguf, tmp_path, own_cache):
    before = total(tiny_gguf)
    content = bytearray(tiny_gguf.read_bytes())
    content[-3] ^= 0xFF
    tiny_gguf.write_bytes(content)
    assert total(tiny_gguf) != before
    assert len(list(own_cache.glob("*-weights-float32"))) == 2


def flip_a_byte(file):
    content = bytearray(file.read_bytes())
    content[-100] ^= 0x40
    file.write_bytes(content)


DAMAGES = {
    "cut off": lambda file: file.write_bytes(file.read_bytes()[:-1000]),
    "empty": lambda file: file.write_bytes(b""),
    "altered": flip_a_byte,
    "gone": lambda file: file.unlink(),
    "manifest gone": lambda file: (file.parent / "manifest.json").unlink(),
    "manifest broken": lambda file: (file.parent / "manifest.json").write_text('{"model.saf'),
    "manifest of nothing": lambda file: (file.unlink(), (file.parent / "manifest.json").write_text("{}")),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_copy_is_built_again(tiny_gguf, own_cache, damage):
    right = total(tiny_gguf)
    (weights,) = own_cache.glob("*-weights-float32/model.safetensors")
    intact = weights.read_bytes()
    DAMAGES[damage](weights)
    assert total(tiny_gguf) == right
    assert weights.read_bytes() == intact
    assert parts(own_cache) == ["config", "weights-float32"]


def test_a_damaged_tokenizer_is_built_again(tiny_gguf, own_cache):
    right = load_tokenizer(str(tiny_gguf)).encode("the quick fox")
    (tokenizer,) = own_cache.glob("*-tokenizer-*/tokenizer.json")
    tokenizer.write_text(tokenizer.read_text()[:1000])
    assert load_tokenizer(str(tiny_gguf)).encode("the quick fox") == right


def test_threads_that_build_at_the_same_time_get_one_folder(own_cache):
    meet = threading.Barrier(3)
    built, found = [], []

    def build(folder):
        meet.wait(timeout=30)  # nobody is done before all have begun
        (folder / "file").write_text("content")
        built.append(folder)

    threads = [
        threading.Thread(target=lambda: found.append(cached_folder("converted", "key", build))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(built) == 3
    assert found == [own_cache / "key"] * 3
    assert (own_cache / "key" / "file").read_text() == "content"
    assert names(own_cache) == ["key"]


def test_a_folder_that_appeared_meanwhile_is_left_alone(own_cache):
    """Whoever is slower must not take away what the quicker one already uses."""

    def identity():
        return (own_cache / "key").stat().st_ino

    def slow_build(folder):
        cached_folder("converted", "key", write_content)  # another process, from beginning to end
        seen.append(identity())
        write_content(folder)

    seen: list[int] = []
    assert cached_folder("converted", "key", slow_build) == own_cache / "key"
    assert seen == [identity()]
    assert names(own_cache) == ["key"]


def race(key, contestants=4):
    """Build a folder in several threads at once, and read from it as soon as it is given."""
    meet = threading.Barrier(contestants)
    read = []

    def build(folder):
        meet.wait(timeout=30)  # nobody is done before all have begun
        write_content(folder)

    def use():
        folder = cached_folder("converted", key, build)
        assert folder is not None
        read.append((folder / "file").read_text())

    threads = [threading.Thread(target=use) for _ in range(contestants)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return read


@pytest.mark.parametrize("before", ["nothing", "damaged"])
def test_whoever_comes_back_from_a_race_can_read_at_once(own_cache, before):
    for i in range(30):
        if before == "damaged":
            cached_folder("converted", f"key{i}", write_content)
            (own_cache / f"key{i}" / "file").write_text("damaged")
        assert race(f"key{i}") == ["content"] * 4
    assert names(own_cache) == sorted(f"key{i}" for i in range(30))


def test_processes_may_convert_at_the_same_time(tiny_gguf, own_cache):
    code = (
        "import math, sys, torch\n"
        "from enginecore_models.source import find_model\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "weights = find_model(sys.argv[1]).weights(torch.float32)\n"
        "print(math.fsum(weight.double().abs().sum().item() for _, weight in weights))\n"
    )
    command = [sys.executable, "-c", code, str(tiny_gguf)]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    outputs = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert {float(out) for out, _ in outputs} == {total(tiny_gguf)}
    assert parts(own_cache) == ["config", "weights-float32"]


def test_a_cache_that_cannot_be_written_is_done_without(tiny_gguf, own_cache, tmp_path, monkeypatch, caplog):
    right, ids = total(tiny_gguf), load_tokenizer(str(tiny_gguf)).encode("the quick fox")
    (tmp_path / "a_file").write_text("in the way")
    monkeypatch.setenv("ENGINECORE_CACHE", str(tmp_path / "a_file" / "cache"))
    with caplog.at_level(logging.WARNING):
        assert total(tiny_gguf) == right
        assert load_tokenizer(str(tiny_gguf)).encode("the quick fox") == ids
    messages = [record.message for record in caplog.records if record.name == "enginecore_models.cache"]
    assert all("going on without" in message for message in messages)
    for part in ("config", "weights-float32", "tokenizer"):
        assert any(f"-{part}" in message for message in messages), part


def test_a_build_that_fails_leaves_nothing(own_cache):
    def build(folder):
        (folder / "half").write_text("of it")
        raise ModelError("no good")

    with pytest.raises(ModelError, match="no good"):
        cached_folder("converted", "key", build)
    assert names(own_cache) == []


def test_what_killed_processes_left_is_removed_after_a_while(own_cache):
    own_cache.mkdir(parents=True)
    for name, age in (("old", 100_000), ("new", 3600)):
        (own_cache / f".partial-{name}").mkdir()
        made = time.time() - age
        os.utime(own_cache / f".partial-{name}", (made, made))
    cached_folder("converted", "key", write_content)
    assert names(own_cache) == [".partial-new", "key"]


@pytest.mark.parametrize(
    ("environment", "root"),
    [
        ({"ENGINECORE_CACHE": "/a", "XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/a"),
        ({"XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/b/enginecore"),
        ({"HOME": "/c"}, "/c/.cache/enginecore"),
    ],
)
def test_where_the_cache_is(monkeypatch, environment, root):
    for name in ("ENGINECORE_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert str(cache_root()) == root
