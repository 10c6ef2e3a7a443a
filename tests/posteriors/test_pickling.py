"""Posteriors and methods go to other processes, and say the same there."""

import multiprocessing
import pickle

import jax
import pytest
from support.builders import conjugate, general, maf, mdn
from support.processes import what_it_knows

import nsmbayes as nsm


def dtypes(tree):
    return [leaf.dtype for leaf in jax.tree.leaves(tree) if hasattr(leaf, "dtype")]


@pytest.mark.parametrize("make", [lambda: general(mdn(1)), lambda: conjugate(1)], ids=["sampled", "conjugate"])
def test_a_posterior_is_the_same_after_pickling(make):
    posterior = make()
    other = pickle.loads(pickle.dumps(posterior))
    assert what_it_knows(other) == what_it_knows(posterior)
    assert other.certificate == posterior.certificate


def test_networks_stay_in_double_precision(random_method):
    method = random_method(1, 2)
    assert dtypes(pickle.loads(pickle.dumps(method)).network) == dtypes(method.network)


def test_a_loaded_posterior_is_the_same_after_pickling(tmp_path):
    posterior = nsm.load(conjugate(1).save(tmp_path / "posterior"))
    other = pickle.loads(pickle.dumps(posterior))
    assert what_it_knows(other) == what_it_knows(posterior)
    assert other.certificate == posterior.certificate


def test_what_cannot_be_pickled_says_what_to_do():
    with pytest.raises(nsm.InputError, match=r"cannot be pickled .* Save it with save\(path\)"):
        pickle.dumps(general(maf(2)))


def test_another_process_says_the_same():
    posterior = conjugate(1)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(what_it_knows, (posterior,)) == what_it_knows(posterior)
