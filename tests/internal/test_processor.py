"""One thread for products of matrices, while and only while it is asked for."""

import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info

import nsmbayes as nsm
from nsmbayes._internal.processor import one_blas_thread
from nsmbayes.errors import NotTrainedError


def threads() -> list[int]:
    return [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]


@pytest.fixture(autouse=True)
def two_threads():
    if not threads() or max(threads()) < 2:
        pytest.skip("this library of linear algebra has one thread")


def test_one_thread_within_and_as_before_outside():
    before = threads()
    with one_blas_thread():
        assert set(threads()) == {1}
        with one_blas_thread():
            assert set(threads()) == {1}
        assert set(threads()) == {1}
    assert threads() == before


def test_an_error_restores_it():
    before = threads()
    with pytest.raises(RuntimeError), one_blas_thread():
        raise RuntimeError
    assert threads() == before


@pytest.mark.parametrize("last", ["the first", "the other"])
def test_threads_that_overlap_leave_it_as_it_was(last):
    before, inside, leave = threads(), threading.Event(), threading.Event()

    def other():
        with one_blas_thread():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with one_blas_thread():
        thread.start()
        assert inside.wait(10)
        if last == "the first":
            leave.set()
            thread.join()
        assert set(threads()) == {1}
    if last == "the other":
        assert set(threads()) == {1}
        leave.set()
        thread.join()
    assert threads() == before


def test_posteriors_are_built_with_one(monkeypatch):
    seen = []
    method = nsm.NSMBayesAmortised(nsm.GaussianPrior([0.0], [1.0]))
    right = type(method)._observations
    monkeypatch.setattr(type(method), "_observations", lambda *a, **k: seen.append(set(threads())) or right(*a, **k))
    with pytest.raises(NotTrainedError):  # it is not trained
        method.build_posterior(np.zeros((5, 1)))
    assert seen == [{1}]
    assert set(threads()) != {1}
