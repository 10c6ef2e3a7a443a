import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nsmbayes._internal import parallel
from nsmbayes._internal.parallel import map_rows
from nsmbayes._internal.precision import double_precision

traces = 0


def powers(row, shift):
    global traces
    traces += 1
    return row.sum() + shift, jnp.outer(row, row)


@pytest.mark.parametrize("block", ["one by one", "at once"])
@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 300])
def test_every_row_has_its_value_whatever_their_number(count, block, monkeypatch):
    if block == "at once":  # as on a GPU
        monkeypatch.setattr(parallel, "on_processor", lambda: False)
        monkeypatch.setattr(
            parallel, "call_each", double_precision(lambda f, each, *shared: [f(*one, *shared) for one in each])
        )
    rows, shift = np.random.default_rng(count).standard_normal((count, 3)), np.array(2.0)
    sums, products = map_rows(powers, rows, shift)
    np.testing.assert_allclose(sums, rows.sum(axis=1) + 2)
    np.testing.assert_allclose(products, rows[:, :, None] * rows[:, None])


def test_other_numbers_of_rows_compile_nothing():
    map_rows(powers, np.ones((5, 2)), np.array(1.0))
    before = traces
    for count in (1, 64, 130):
        assert map_rows(powers, np.ones((count, 2)), np.array(3.0))[0].tolist() == [5.0] * count
    assert traces == before > 0


def test_the_device_is_that_of_the_user(monkeypatch):
    cpu = jax.devices("cpu")[0]
    monkeypatch.setattr(jax, "devices", lambda *kind: ["the GPU"])
    assert parallel.device() == "the GPU"
    with jax.default_device(cpu):
        assert parallel.device() == cpu
