"""Functions that simulate. Other processes import them: nothing large here."""

import os
import time

import numpy as np


def noisy(rng, theta):
    return theta + rng.standard_normal(2)


def noisy_batch(rng, theta):
    return theta + rng.standard_normal(theta.shape)


def bad(rng, theta):
    """Each kind of failure somewhere: at rows 3, 5, 7 and 9 of those that `bad_theta` makes."""
    kind = int(theta[0])
    if kind == 1:
        raise ValueError("no such star")
    if kind == 2:
        return np.array([1.0, np.nan])
    if kind == 3:
        time.sleep(60)
    if kind == 4:
        os.abort()
    return theta + rng.standard_normal(2)


def slow(rng, theta):
    """`noisy`, but it takes a while."""
    time.sleep(0.003)
    return noisy(rng, theta)
