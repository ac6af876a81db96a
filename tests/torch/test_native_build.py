"""Compiling the kernels: once, in the user's cache, and what happens where it cannot be done."""

import logging

import pytest
import torch

from enginecore.errors import ConfigurationError
from enginecore_torch.attention import AttentionShape
from enginecore_torch.backends import make_backends
from enginecore_torch.native_build import load_kernels

CPU = torch.device("cpu")
SHAPE = AttentionShape(4, 2, 16, 16, torch.float32, CPU)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ENGINECORE_CACHE", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    return tmp_path / "kernels"


def test_one_library_per_storage_type_is_compiled_and_then_kept(cache):
    load_kernels(torch.float32, CPU)
    load_kernels(torch.bfloat16, CPU)
    libraries = sorted(cache.iterdir())
    assert [library.suffix for library in libraries] == [".so", ".so"]  # and nothing half-made
    before = [library.stat().st_mtime_ns for library in libraries]
    load_kernels(torch.float32, CPU)
    assert [library.stat().st_mtime_ns for library in libraries] == before


def test_another_compiler_is_another_library(cache, tmp_path, monkeypatch):
    load_kernels(torch.float32, CPU)
    wrapper = tmp_path / "other-cc"
    wrapper.write_text('#!/bin/sh\n[ "$1" = --version ] && echo other || exec cc "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("CC", str(wrapper))
    load_kernels(torch.float32, CPU)
    assert len(list(cache.iterdir())) == 2


@pytest.mark.parametrize(
    ("compiler", "message"), [("/no/such/cc", "no C compiler was found"), ("false", "could not compile")]
)
def test_without_a_working_compiler_native_is_an_error_and_auto_is_torch(cache, monkeypatch, caplog, compiler, message):
    monkeypatch.setenv("CC", compiler)
    with pytest.raises(ConfigurationError, match=message):
        make_backends("native", "torch", SHAPE)
    with pytest.raises(ConfigurationError, match=message):
        make_backends("auto", "native", SHAPE)
    with caplog.at_level(logging.WARNING):
        attention, ops = make_backends("auto", "auto", SHAPE)
    assert (attention.name, type(ops).__name__) == ("torch", "TorchOps")
    assert len(caplog.records) == 1
    assert message in caplog.text
    assert not cache.exists() or not list(cache.iterdir())


def test_a_cache_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ENGINECORE_CACHE", str(tmp_path / "file"))
    with pytest.raises(ConfigurationError, match=r"cannot be kept in .*file/kernels"):
        load_kernels(torch.float32, CPU)


def test_choices_are_independent(cache):
    assert make_backends("native", "torch", SHAPE)[0].name == "native"
    assert type(make_backends("torch", "native", SHAPE)[1]).__name__ == "NativeOps"
    assert make_backends("auto", "auto", SHAPE)[0].name == "native"


def test_types_that_the_kernels_do_not_store_are_refused(cache):
    with pytest.raises(ConfigurationError, match=r"float32 or bfloat16, not on cpu with torch\.float16"):
        load_kernels(torch.float16, CPU)


def test_torch_and_the_kernels_share_one_openmp(cache):
    load_kernels(torch.float32, CPU)
    with open("/proc/self/maps") as maps:
        libraries = {line.split()[-1] for line in maps if "libgomp" in line or "libiomp" in line}
    assert len(libraries) == 1
