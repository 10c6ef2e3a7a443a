import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nsmbayes._internal import parallel
from nsmbayes._internal.parallel import call_each, in_order, map_rows
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


def test_items_are_worked_on_at_once_and_come_in_order():
    meeting = threading.Barrier(parallel._AT_ONCE, timeout=20)  # reached only by as many threads at once
    asked = []

    def items():
        for i in range(3 * parallel._AT_ONCE):
            asked.append(i)
            yield i

    def work(i):
        meeting.wait()
        time.sleep(0.01 * (7 * i % 5))
        return 10 * i, parallel.device()

    with jax.default_device("cpu"):
        found = in_order(work, items())
        first, on = next(found)
        assert first == 0
        assert on == jax.devices("cpu")[0]
        assert len(asked) <= parallel._AT_ONCE + 1  # no more are taken than are worked on
        assert [first for first, _ in found] == [10 * i for i in range(1, 3 * parallel._AT_ONCE)]


def test_an_error_of_one_item_is_raised_in_its_turn():
    found = in_order(lambda i: 1 / (2 - i), range(5))
    assert [next(found), next(found)] == [0.5, 1.0]
    with pytest.raises(ZeroDivisionError):
        next(found)


def test_threads_compile_a_program_once():
    before, barrier = traces, threading.Barrier(4, timeout=20)

    def call(i):
        barrier.wait()
        return call_each(powers, [(np.full(7, float(i)), np.array(0.0))])[0][0]

    assert list(map(float, in_order(call, range(4)))) == [0.0, 7.0, 14.0, 21.0]
    assert traces == before + 1
