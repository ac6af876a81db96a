"""The operations in C against their torch versions, and those against torch's own functions."""

import pytest
import torch
from torch.nn import functional

from enginecore_torch.native.build import load_kernels
from enginecore_torch.ops.native import NativeOps
from enginecore_torch.ops.reference import TorchOps

SHAPES = [(1, 2), (1, 576), (3, 17), (5, 64), (70, 576)]
DTYPES = [torch.float32, torch.bfloat16]
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2}


def assert_close(actual, expected, dtype):
    torch.testing.assert_close(actual, expected, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


@pytest.fixture(params=[1, 2])
def threads(request, one_thread):
    torch.set_num_threads(request.param)


def both(dtype):
    return TorchOps(), NativeOps(load_kernels(dtype, torch.device("cpu")))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_rms_norm(shape, dtype):
    torch.manual_seed(0)
    x, weight = (3 * torch.randn(shape)).to(dtype), torch.randn(shape[1]).to(dtype)
    expected = functional.rms_norm(x.float(), (shape[1],), weight.float(), 1e-5).to(dtype)
    for ops in both(dtype):
        assert_close(ops.rms_norm(x, weight, 1e-5), expected, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_add_rms_norm_also_updates_the_residual(shape, dtype, threads):
    torch.manual_seed(0)
    x, residual, weight = torch.randn(shape).to(dtype), torch.randn(shape).to(dtype), torch.randn(shape[1]).to(dtype)
    total = x + residual
    expected = functional.rms_norm(total.float(), (shape[1],), weight.float(), 1e-5).to(dtype)
    for ops in both(dtype):
        own = residual.clone()
        assert_close(ops.add_rms_norm(x, own, weight, 1e-5), expected, dtype)
        assert torch.equal(own, total)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("heads", "head_dim"), [(1, 2), (5, 6), (12, 64)])
def test_rotate_turns_pairs_of_halves_and_nothing_else(heads, head_dim, dtype):
    torch.manual_seed(0)
    whole = torch.randn(60, heads + 2, head_dim).to(dtype)
    angles = torch.randn(200, head_dim // 2)
    table = torch.cat((angles.cos(), angles.sin()), -1)
    positions = torch.randint(200, (60,))
    turned = torch.polar(torch.ones(60, 1, head_dim // 2), angles[positions][:, None])
    first, second = whole[:, :heads].float().chunk(2, -1)
    product = torch.complex(first, second) * turned
    expected = torch.cat((product.real, product.imag), -1).to(dtype)
    for ops in both(dtype):
        own = whole.clone()
        ops.rotate(own[:, :heads], positions, table)
        assert_close(own[:, :heads], expected, dtype)
        assert torch.equal(own[:, heads:], whole[:, heads:])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_silu_and_mul(shape, dtype):
    torch.manual_seed(0)
    x = (4 * torch.randn(shape[0], 2 * shape[1])).to(dtype)
    gate, up = x.float().chunk(2, -1)
    expected = (functional.silu(gate) * up).to(dtype)
    for ops in both(dtype):
        assert_close(ops.silu_and_mul(x), expected, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_silu_at_the_ends_of_the_range(dtype):
    gate = torch.tensor([[-1e30, -200.0, -88.0, -1e-20, 0.0, 88.0, 200.0, 1e30, torch.nan]]).to(dtype)
    for ops in both(dtype):
        out = ops.silu_and_mul(torch.cat((gate, torch.ones_like(gate)), -1)).float()
        torch.testing.assert_close(out, functional.silu(gate.float()), atol=1e-30, rtol=1e-2, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_that_is_not_a_number_stays_one_and_alone(dtype):
    x = torch.ones(3, 40).to(dtype)
    x[1, 7] = torch.nan
    for ops in both(dtype):
        out = ops.rms_norm(x, torch.ones(40).to(dtype), 1e-5)
        assert out[1].isnan().all()
        assert out[[0, 2]].isfinite().all()
