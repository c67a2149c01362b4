from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import grad, gradcheck, gradgradcheck

from jlgcn.ops import kernel_matmul
from jlgcn.ops.blocks import block_matmul, kernel_matrix
from jlgcn.ops.flash import flash_forward
from jlgcn.ops.gaussian import MAX_FLASH_WIDTH, MAX_SQUARED_NORM_FLOAT32, Method
from jlgcn.ops.precision import without_denormals
from tests.brute import F64, gaussian, largest_difference, points

EVERY_METHOD = pytest.mark.parametrize("method", ["auto", "flash", "blocks"])


def brute(z_rows: Tensor, z_cols: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    kernel = gaussian(z_rows, z_cols)
    return kernel @ v, kernel.sum(-1)


def with_gradients(
    outputs: tuple[Tensor, Tensor], inputs: tuple[Tensor, ...]
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return outputs and their gradients for fixed, unequal weights of every output."""
    weights = [torch.cos(torch.arange(o.numel(), dtype=o.dtype)).view(o.shape) for o in outputs]
    return outputs, grad(outputs, inputs, weights, allow_unused=True, materialize_grads=True)


@EVERY_METHOD
@pytest.mark.parametrize("channels", [0, 1, 4, 5, 9])
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_equals_brute_force_in_values_and_gradients(
    method: Method, channels: int, batch: tuple[int, ...]
) -> None:
    inputs = (
        points(*batch, 23, 4, grad=True),
        points(*batch, 31, 4, grad=True),
        points(*batch, 31, channels, grad=True),
    )
    expected, expected_gradients = with_gradients(brute(*inputs), inputs)
    got, got_gradients = with_gradients(kernel_matmul(*inputs, method=method), inputs)
    assert max(map(largest_difference, got, expected)) < 1e-12
    assert max(map(largest_difference, got_gradients, expected_gradients)) < 1e-11


@pytest.mark.parametrize("block_size", [1, 2, 7, 23, 1000])
def test_block_size_does_not_matter(block_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jlgcn.ops.blocks.BLOCK_ENTRIES", 31 * block_size)
    inputs = points(23, 4, grad=True), points(31, 4, grad=True), points(31, 3, grad=True)
    expected, expected_gradients = with_gradients(brute(*inputs), inputs)
    product = kernel_matmul(*inputs, method="blocks")
    got, got_gradients = with_gradients(product, inputs)
    assert max(map(largest_difference, got, expected)) < 1e-12
    assert max(map(largest_difference, got_gradients, expected_gradients)) < 1e-11


@EVERY_METHOD
def test_float32_has_five_digits_while_points_are_short(method: Method) -> None:
    z = torch.randn(200, 8)
    z = z * (50 / z.square().sum(-1).max()).sqrt()
    inputs = z.requires_grad_(), torch.randn(200, 6, requires_grad=True)
    exact = tuple(t.detach().double().requires_grad_() for t in inputs)
    expected, expected_gradients = with_gradients(brute(exact[0], exact[0], exact[1]), exact)
    got = kernel_matmul(inputs[0], inputs[0], inputs[1], method=method)
    got, got_gradients = with_gradients(got, inputs)  # type: ignore[assignment]
    for value, truth in zip(got, expected, strict=True):
        assert largest_difference(value, truth) < 1e-5 * float(truth.detach().abs().max())
    for value, truth in zip(got_gradients, expected_gradients, strict=True):
        assert largest_difference(value, truth) < 1e-4 * float(truth.detach().abs().max())


@pytest.mark.parametrize("method", ["flash", "blocks"])
@pytest.mark.parametrize("squared_norm", [1.0, 10.0, 100.0, 800.0, 5000.0])
def test_float32_error_grows_no_faster_than_the_stated_bound(
    method: Method, squared_norm: float
) -> None:
    # Pairs of near points on a sphere: their weights are large while their lengths are, too.
    centres = torch.nn.functional.normalize(torch.randn(100, 8, dtype=F64), dim=-1)
    z = (centres * squared_norm**0.5).repeat_interleave(2, 0)
    z = (z + 0.05 * torch.randn_like(z)).float()
    kernel = gaussian(z.double(), z.double())
    _, degree = kernel_matmul(z, z, z[:, :0], method=method)
    error = largest_difference(degree / kernel.sum(-1), torch.ones(200))
    assert error < 8 * torch.finfo(torch.float32).eps * max(1.0, squared_norm)


def test_auto_keeps_its_digits_however_long_the_points() -> None:
    centres = torch.randn(100, 8).repeat_interleave(2, 0) * 1000
    z = (centres + 0.05 * torch.randn(200, 8)).requires_grad_()
    v = torch.randn(200, 3, requires_grad=True)
    exact = tuple(t.detach().double().requires_grad_() for t in (z, v))
    expected, expected_gradients = with_gradients(brute(exact[0], exact[0], exact[1]), exact)
    got, got_gradients = with_gradients(kernel_matmul(z, z, v), (z, v))
    assert max(map(largest_difference, got, expected)) < 1e-5
    assert max(map(largest_difference, got_gradients, expected_gradients)) < 1e-4


@pytest.mark.parametrize("channels", [0, 3, 100])
@pytest.mark.parametrize("has_padding", [False, True])
def test_a_few_long_points_are_exact_and_so_are_the_others(
    channels: int, has_padding: bool
) -> None:
    z_rows, z_cols = torch.randn(60, 8), torch.randn(90, 8)
    z_rows[3], z_rows[7] = 400, -350  # squared lengths of a million
    z_cols[5], z_cols[80] = z_rows[3] + 0.1, z_rows[7] - 0.2
    z_cols[6] = 900
    v = torch.randn(90, channels)
    inputs = z_rows.requires_grad_(), z_cols.requires_grad_(), v.requires_grad_()
    valid = torch.arange(90) != 80 if has_padding else None
    exact = tuple(t.detach().double().requires_grad_() for t in inputs)
    kept = torch.ones(90, dtype=torch.float64) if valid is None else valid.double()
    kernel = gaussian(exact[0], exact[1]) * kept
    expected, expected_gradients = with_gradients((kernel @ exact[2], kernel.sum(-1)), exact)
    got, got_gradients = with_gradients(kernel_matmul(*inputs, valid), inputs)
    for left, right in zip((*got, *got_gradients), (*expected, *expected_gradients), strict=True):
        scale = max(1.0, float(right.detach().abs().max())) if right.numel() else 1.0
        assert largest_difference(left, right) < 3e-5 * scale
    # Method flash, in float32 throughout, gets the long pairs visibly wrong.
    plain = kernel_matmul(*inputs, valid, method="flash")[1]
    assert largest_difference(plain[3], expected[1][3]) > 1e-4


@pytest.mark.parametrize(("num_long", "num_pairs"), [(0, 0), (9, 9 * 50 + 41 * 9), (11, 50 * 50)])
def test_float64_is_paid_for_pairs_of_long_points_while_they_are_few(
    num_long: int, num_pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_float64 = []

    def multiply(rows: Tensor, cols: Tensor, *rest: Tensor | None) -> tuple[Tensor, ...]:
        if rows.dtype == F64:
            in_float64.append(len(rows) * len(cols))
        return flash_forward(rows, cols, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr("jlgcn.ops.gaussian.flash_forward", multiply)
    z = torch.randn(50, 3)
    z[:num_long:2] += 400
    z[1:num_long:2] -= 400  # so that their mean is not long itself
    kernel_matmul(z, z, torch.randn(50, 2))
    assert sum(in_float64) == num_pairs


def test_a_long_point_is_exact_to_a_short_one_beside_it() -> None:
    z = torch.randn(60, 8)
    z[0], z[1] = 11.4, 11.7
    is_long = (z - z.mean(0)).square().sum(-1) > MAX_SQUARED_NORM_FLOAT32
    assert is_long.nonzero().tolist() == [[1]]
    product, _ = kernel_matmul(z, z, torch.eye(60))
    weight = float(gaussian(z.double(), z.double())[0, 1])
    assert weight == pytest.approx(float(product[0, 1]), abs=2e-7)
    assert weight == pytest.approx(float(product[1, 0]), abs=2e-7)


@EVERY_METHOD
@pytest.mark.parametrize("offset", [1e2, 1e4])
def test_an_offset_of_all_points_changes_nothing(method: Method, offset: float) -> None:
    z = torch.randint(-4, 5, (50, 6)) / 8  # exact in float32, with and without the offset
    v = torch.randn(50, 3)
    plain = kernel_matmul(z, z, v, method=method)
    moved = kernel_matmul(z + offset, z + offset, v, method=method)
    assert max(map(largest_difference, plain, moved)) < 1e-4


@EVERY_METHOD
def test_gradcheck(method: Method) -> None:
    inputs = points(6, 3, grad=True), points(5, 3, grad=True), points(5, 2, grad=True)
    assert gradcheck(lambda *t: kernel_matmul(*t, method=method), inputs)


@pytest.mark.slow
def test_blocks_can_be_differentiated_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jlgcn.ops.blocks.BLOCK_ENTRIES", 2 * 4)
    inputs = points(5, 2, grad=True), points(4, 2, grad=True), points(4, 2, grad=True)
    assert gradgradcheck(lambda *t: kernel_matmul(*t, method="blocks"), inputs)


@pytest.mark.parametrize(("method", "channels"), [("auto", 2), ("auto", 100), ("flash", 2)])
def test_flash_says_how_to_differentiate_twice(method: Method, channels: int) -> None:
    z = points(5, 2, grad=True)
    _, degree = kernel_matmul(z, z, points(5, channels), method=method)
    (first,) = grad(degree.square().sum(), z, create_graph=True)
    with pytest.raises(RuntimeError, match='use method="blocks"'):
        grad(first.square().sum(), z)


@EVERY_METHOD
def test_shards_of_rows_and_columns_add_up(method: Method) -> None:
    z, v = points(30, 4, grad=True), points(30, 3, grad=True)
    whole, whole_gradients = with_gradients(kernel_matmul(z, z, v, method=method), (z, v))
    products, degrees = [], []
    for rows in (slice(0, 7), slice(7, 20), slice(20, 30)):
        parts = [
            kernel_matmul(z[rows], z[cols], v[cols], method=method)
            for cols in (slice(0, 13), slice(13, 30))
        ]
        products.append(parts[0][0] + parts[1][0])
        degrees.append(parts[0][1] + parts[1][1])
    sharded, gradients = with_gradients((torch.cat(products), torch.cat(degrees)), (z, v))
    assert max(map(largest_difference, sharded, whole)) < 1e-12
    assert max(map(largest_difference, gradients, whole_gradients)) < 1e-11


@EVERY_METHOD
@pytest.mark.parametrize("padding", [0.0, 1e6, float("nan"), float("inf")])
def test_padding_changes_nothing_whatever_it_holds(method: Method, padding: float) -> None:
    z, v = points(2, 12, 4, grad=True), points(2, 12, 3, grad=True)
    whole, gradients = with_gradients(kernel_matmul(z, z, v, method=method), (z, v))
    valid = torch.tensor([True] * 12 + [False] * 5).expand(2, -1)
    hole = torch.full((2, 5, 1), padding, dtype=F64)
    z_cols = torch.cat([z, hole.expand(-1, -1, 4)], -2)
    v_padded = torch.cat([v, hole.expand(-1, -1, 3)], -2)
    padded, padded_gradients = with_gradients(
        kernel_matmul(z, z_cols, v_padded, valid, method=method), (z, v)
    )
    assert max(map(largest_difference, padded, whole)) < 1e-12
    assert max(map(largest_difference, padded_gradients, gradients)) < 1e-11


@EVERY_METHOD
def test_a_row_without_any_valid_column_gets_zero(method: Method) -> None:
    z, v = points(4, 2, grad=True), points(4, 3, grad=True)
    nothing = torch.zeros(4, dtype=torch.bool)
    got, gradients = with_gradients(kernel_matmul(z, z, v, nothing, method=method), (z, v))
    assert all(not t.any() for t in (*got, *gradients))


@EVERY_METHOD
def test_far_rows_underflow_to_zero_not_to_nan(method: Method) -> None:
    z_rows, z_cols = torch.full((3, 2), 30.0, requires_grad=True), torch.zeros(4, 2)
    v = torch.ones(4, 2, requires_grad=True)
    got, gradients = with_gradients(kernel_matmul(z_rows, z_cols, v, method=method), (z_rows, v))
    assert all(not t.any() for t in (*got, *gradients))


@EVERY_METHOD
@pytest.mark.parametrize(("num_rows", "num_cols"), [(0, 3), (3, 0), (0, 0)])
def test_no_rows_or_no_columns(method: Method, num_rows: int, num_cols: int) -> None:
    z_rows, z_cols = points(num_rows, 2, grad=True), points(num_cols, 2, grad=True)
    v = points(num_cols, 4, grad=True)
    product, degree = kernel_matmul(z_rows, z_cols, v, method=method)
    assert product.shape == (num_rows, 4)
    assert not product.any()
    assert not degree.any()
    gradients = grad(product.sum() + degree.sum(), (z_rows, z_cols, v))
    assert all(not g.any() for g in gradients)


@EVERY_METHOD
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_summed_in_float32(method: Method, dtype: torch.dtype) -> None:
    z, v = torch.randn(300, 4).to(dtype), torch.rand(300, 3).to(dtype)
    product, degree = kernel_matmul(z, z, v, method=method)
    expected, expected_degree = brute(z.double(), z.double(), v.double())
    assert product.dtype == dtype
    assert degree.dtype == torch.float32
    assert largest_difference(degree / expected_degree, torch.ones(300)) < 1e-5
    rounding = torch.finfo(dtype).eps
    assert largest_difference(product / expected, torch.ones(300, 3)) < rounding


@EVERY_METHOD
def test_autocast_does_not_lower_the_precision(method: Method) -> None:
    z, v = torch.randn(60, 4, requires_grad=True), torch.rand(60, 3, requires_grad=True)
    plain, plain_gradients = with_gradients(kernel_matmul(z, z, v, method=method), (z, v))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast, cast_gradients = with_gradients(kernel_matmul(z, z, v, method=method), (z, v))
    assert max(map(largest_difference, cast, plain)) < 1e-5
    assert max(map(largest_difference, cast_gradients, plain_gradients)) < 1e-4


def test_batch_dimensions_are_broadcast() -> None:
    z_rows, z_cols, v = points(3, 1, 5, 2), points(4, 6, 2), points(6, 3)
    product, degree = kernel_matmul(z_rows, z_cols, v)
    expected, expected_degree = brute(z_rows, z_cols, v)
    assert largest_difference(product, expected) < 1e-12
    assert largest_difference(degree, expected_degree) < 1e-12


def test_inputs_are_not_changed() -> None:
    z, v = points(20, 4), points(20, 3)
    copies = z.clone(), v.clone()
    for method in ("flash", "blocks"):
        kernel_matmul(z, z, v, torch.ones(20, dtype=torch.bool), method=method)
    assert torch.equal(z, copies[0])
    assert torch.equal(v, copies[1])


def test_auto_takes_blocks_for_wide_right_hand_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("flash was used")

    monkeypatch.setattr("jlgcn.ops.gaussian.flash_forward", refuse)
    z = points(5, 2)
    kernel_matmul(z, z, points(5, MAX_FLASH_WIDTH + 1))
    with pytest.raises(AssertionError, match="flash was used"):
        kernel_matmul(z, z, points(5, MAX_FLASH_WIDTH))


# The compiler itself does what it warns of here.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@EVERY_METHOD
def test_compiles_without_graph_breaks(method: Method) -> None:
    def run(z: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return kernel_matmul(z, z, v, method=method)

    inputs = points(20, 4, grad=True), points(20, 3, grad=True)
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    expected, expected_gradients = with_gradients(run(*inputs), inputs)
    got, got_gradients = with_gradients(compiled(*inputs), inputs)
    assert max(map(largest_difference, got, expected)) < 1e-12
    assert max(map(largest_difference, got_gradients, expected_gradients)) < 1e-11


def test_bad_arguments_are_refused_with_a_remedy() -> None:
    z, v = points(5, 2), points(5, 3)
    with pytest.raises(ValueError, match="auto, flash, blocks, but it is 'dense'"):
        kernel_matmul(z, z, v, method="dense")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"must be matrices.*unsqueeze"):
        kernel_matmul(z, z, v[:, 0])
    with pytest.raises(ValueError, match="same number of dimensions, but they have 2 and 1"):
        kernel_matmul(z, z[:, :1], v)
    with pytest.raises(ValueError, match=r"v must have a row for each of 5 columns.* has 4"):
        kernel_matmul(z, z, v[:4])
    with pytest.raises(ValueError, match="col_valid must be bool with 5 entries"):
        kernel_matmul(z, z, v, torch.ones(5))


@pytest.mark.gpu
@pytest.mark.parametrize("method", ["flash", "blocks"])
def test_cuda_equals_the_cpu(method: Method) -> None:
    inputs = (
        points(2, 37, 5, dtype=torch.float32, grad=True),
        points(2, 45, 5, dtype=torch.float32, grad=True),
        points(2, 45, 9, dtype=torch.float32, grad=True),
    )
    on_cuda = tuple(t.detach().cuda().requires_grad_() for t in inputs)
    expected, expected_gradients = with_gradients(kernel_matmul(*inputs, method="blocks"), inputs)
    product, degree = kernel_matmul(*on_cuda, method=method)
    got, got_gradients = with_gradients((product.cpu(), degree.cpu()), on_cuda)
    assert max(map(largest_difference, got, expected)) < 1e-4
    assert (
        max(
            largest_difference(a.cpu(), b)
            for a, b in zip(got_gradients, expected_gradients, strict=True)
        )
        < 1e-3
    )


@pytest.mark.parametrize("batch", [(), (3,)])
def test_the_kernel_written_out(batch: tuple[int, ...]) -> None:
    z = points(*batch, 8, 3, grad=True)
    kernel = kernel_matrix(z)
    assert largest_difference(kernel, gaussian(z, z)) < 1e-14
    assert gradcheck(kernel_matrix, (z,))
    assert gradgradcheck(kernel_matrix, (z,))
    assert kernel_matrix(z.detach().bfloat16()).dtype == torch.float32
    far = kernel_matrix(z.detach().float() + 1e3)
    assert largest_difference(far, gaussian(z, z)) < 1e-3


def test_denormal_numbers_are_flushed_within_and_nowhere_else() -> None:
    tiny = torch.tensor(torch.finfo(torch.float32).tiny)
    assert float(tiny / 2) > 0, "some test before this one has changed the arithmetic"
    z = torch.tensor([[0.0], [9.6]])  # exp(-92) is a denormal number
    product, _ = kernel_matmul(z, z, torch.eye(2))
    assert float(product[0, 1]) == 0
    assert float(tiny / 2) > 0
    with without_denormals():
        kernel_matmul(z, z, torch.eye(2))
        assert float(tiny / 2) == 0
    assert float(tiny / 2) > 0


def test_blocks_alone_are_the_kernel_written_out() -> None:
    z_rows, z_cols, v = points(7, 3), points(5, 3), points(5, 2)
    product = block_matmul(z_rows, z_cols, v)
    assert largest_difference(product, brute(z_rows, z_cols, v)[0]) < 1e-12
