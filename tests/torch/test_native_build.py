"""Compiling the kernels: once, in the user's cache, and what happens where it cannot be done."""

import logging
import shutil

import pytest
import torch

from enginecore.errors import ConfigurationError
from enginecore_torch.attention.interface import AttentionContext, AttentionNeeds
from enginecore_torch.native.build import load_kernels
from enginecore_torch.ops.choice import choose_ops
from tests.torch.tiny import make_catalog

CPU = torch.device("cpu")
NEEDS = AttentionNeeds(num_heads=4, num_kv_heads=2, head_dim=16, block_size=16, dtype=torch.float32, device=CPU)


def attention_for(choice):
    catalog = make_catalog()
    return catalog.build("attention", choice, AttentionContext(needs=NEEDS, catalog=catalog)).name


def ops_for(choice):
    return type(choose_ops(choice, torch.float32, CPU)).__name__


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ENGINECORE_CACHE", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    return tmp_path / "kernels"


WRITE_TEXT = """while [ "$1" != -o ]; do shift; done; echo text > "$2\""""


def make_compiler(path, script):
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def libraries(cache):
    return sorted(cache.rglob("*.so"))


def test_one_library_per_storage_type_is_compiled_and_then_kept(cache):
    load_kernels(torch.float32, CPU)
    load_kernels(torch.bfloat16, CPU)
    assert len(libraries(cache)) == 2
    assert not list(cache.glob(".partial-*"))  # nothing half-made
    before = [library.stat().st_mtime_ns for library in libraries(cache)]
    load_kernels(torch.float32, CPU)
    assert [library.stat().st_mtime_ns for library in libraries(cache)] == before


def replace(library, content):
    library.unlink()  # not in place, where somebody may have it mapped
    library.write_bytes(content)


def put_folder_in_place_of(library):
    library.unlink()
    library.mkdir()


def put_file_in_place_of_folder(library):
    shutil.rmtree(library.parent)
    library.parent.write_bytes(b"")


DAMAGES = {
    "cut off": lambda library, intact: replace(library, intact[:1000]),
    "empty": lambda library, intact: replace(library, b""),
    "altered": lambda library, intact: replace(library, intact[:5000] + b"?" + intact[5001:]),
    "a folder": lambda library, intact: put_folder_in_place_of(library),
    "a file for the folder": lambda library, intact: put_file_in_place_of_folder(library),
}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A cache with the kernels in it."""
    folder = tmp_path_factory.mktemp("built")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ENGINECORE_CACHE", str(folder))
        load_kernels(torch.float32, CPU)
    return folder


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_library_is_compiled_again_before_it_can_do_harm(built, cache, damage):
    # at a place of its own: the linker does not read a path again that it has loaded from
    shutil.copytree(built, cache.parent, dirs_exist_ok=True)
    (library,) = libraries(cache)
    intact = library.read_bytes()
    DAMAGES[damage](library, intact)
    assert load_kernels(torch.float32, CPU).rms_norm
    assert library.read_bytes() == intact


def test_another_compiler_is_another_library(cache, tmp_path, monkeypatch):
    load_kernels(torch.float32, CPU)
    script = '[ "$1" = --version ] && echo other || exec cc "$@"'
    monkeypatch.setenv("CC", make_compiler(tmp_path / "other-cc", script))
    load_kernels(torch.float32, CPU)
    assert len(libraries(cache)) == 2


@pytest.mark.parametrize(
    ("compiler", "message"), [("/no/such/cc", "no C compiler was found"), ("false", "could not compile")]
)
def test_without_a_working_compiler_native_is_an_error_and_auto_is_torch(cache, monkeypatch, caplog, compiler, message):
    monkeypatch.setenv("CC", compiler)
    with pytest.raises(ConfigurationError, match=message):
        attention_for("native")
    with pytest.raises(ConfigurationError, match=message):
        ops_for("native")
    with caplog.at_level(logging.WARNING):
        assert attention_for("auto") == "torch"
        assert ops_for("auto") == "TorchOps"
    assert [message in record.message for record in caplog.records] == [True, True]
    assert not list(cache.rglob("*"))


def test_what_cannot_be_loaded_is_compiled_again(cache, tmp_path, monkeypatch, caplog):
    # the first library is text, though the compiler says that all is well
    script = (
        f'[ "$1" = --version ] && exit; [ -e {tmp_path}/told ] && exec cc "$@"; touch {tmp_path}/told; {WRITE_TEXT}'
    )
    monkeypatch.setenv("CC", make_compiler(tmp_path / "late-cc", script))
    with caplog.at_level(logging.WARNING):
        assert load_kernels(torch.float32, CPU).rms_norm
    assert [record.message.endswith("are compiled again") for record in caplog.records] == [True]
    (library,) = libraries(cache)
    assert library.read_bytes().startswith(b"\x7fELF")


def test_what_can_never_be_loaded_is_an_error_for_native_and_torch_for_auto(cache, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("CC", make_compiler(tmp_path / "broken-cc", f'[ "$1" = --version ] && exit; {WRITE_TEXT}'))
    with pytest.raises(ConfigurationError, match=r"cannot be kept or loaded: .*kernels\.so"):
        attention_for("native")
    with caplog.at_level(logging.WARNING):
        assert attention_for("auto") == "torch"
    assert "attention: torch" in caplog.text


def test_a_compiler_that_cannot_be_run_is_named(cache, tmp_path, monkeypatch):
    monkeypatch.setenv("CC", make_compiler(tmp_path / "odd-cc", ""))
    (tmp_path / "odd-cc").write_text("neither a program nor a script")
    with pytest.raises(ConfigurationError, match="odd-cc cannot be run"):
        load_kernels(torch.float32, CPU)


def test_where_the_cache_cannot_be_written_the_kernels_are_compiled_at_every_start(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ENGINECORE_CACHE", str(tmp_path / "file"))
    with caplog.at_level(logging.WARNING):
        assert load_kernels(torch.float32, CPU).rms_norm
    assert "the next start is as slow" in caplog.text


def test_choices_are_independent(cache):
    assert [attention_for(choice) for choice in ("native", "torch", "auto")] == [
        "native",
        "torch",
        "native",
    ]
    assert [ops_for(choice) for choice in ("native", "torch", "auto")] == ["NativeOps", "TorchOps", "NativeOps"]


def test_types_that_the_kernels_do_not_store_are_refused(cache):
    with pytest.raises(ConfigurationError, match=r"float32 or bfloat16, not on cpu with torch\.float16"):
        load_kernels(torch.float16, CPU)


def test_torch_and_the_kernels_share_one_openmp(cache):
    load_kernels(torch.float32, CPU)
    with open("/proc/self/maps") as maps:
        libraries = {line.split()[-1] for line in maps if "libgomp" in line or "libiomp" in line}
    assert len(libraries) == 1
