"""Simulators for the tests of campaigns: good ones, bad ones, and a real program."""

import shutil
import subprocess

import numpy as np
import pytest

import nsmbayes as nsm
from nsmbayes.calls import Work
from nsmbayes.calls.executors import outcomes
from nsmbayes.simulators import draw_theta

PRIOR = nsm.GaussianPrior(mean=[0.0, 1.0], covariance=[1.0, 0.25])

PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    double a, b; unsigned seed;
    FILE *in = fopen(argv[1], "r"), *out = fopen(argv[2], "w");
    if (fscanf(in, "a = %lf\nb = %lf\nseed = %u", &a, &b, &seed) != 3) return 3;
    srand(seed);
    if (a > 2.5) { fprintf(stderr, "a is too large\n"); return 4; }
    fprintf(out, "%.17g, %.17g\n", a + rand() / (double) RAND_MAX, b);
    return 0;
}
"""


def bad_theta(m=12):
    theta = np.zeros((m, 2))
    theta[[3, 5, 7, 9], 0] = [1, 2, 3, 4]
    return theta


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    """A small simulator in C."""
    compiler = shutil.which("cc") or pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("program")
    (folder / "simulate.c").write_text(PROGRAM)
    subprocess.run([compiler, "-o", folder / "simulate", folder / "simulate.c"], check=True)
    return str(folder / "simulate")


def command(program):
    return nsm.CommandSimulator(
        [program, "{input}", "{output}"], template="a = {theta[0]}\nb = {theta[1]}\nseed = {seed}\n"
    )


def works(caller, m, batch, theta=None):
    """The rows of seed 0, in pieces of `batch`."""
    for start in range(0, m, batch):
        stop = min(m, start + batch)
        low, high = start // caller.calls_of * caller.calls_of, -(-stop // caller.calls_of) * caller.calls_of
        rows = draw_theta(PRIOR, 0, low, high) if theta is None else theta[low:high]
        yield Work(0, start, stop, low, rows)


def all_rows(caller, m, batch, executor, timeout=None, theta=None):
    """x, status and reasons of m rows, in order."""
    found = {work.start: made for work, made in outcomes(caller, works(caller, m, batch, theta), executor, timeout)}
    ordered = [found[start] for start in sorted(found)]
    reasons = {row: reason for made in ordered for row, reason in made.reasons.items()}
    return np.concatenate([made.x for made in ordered]), np.concatenate([made.status for made in ordered]), reasons
