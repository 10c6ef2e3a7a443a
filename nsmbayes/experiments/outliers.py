"""stub"""

import numpy as np

from nsmbayes.contamination import choose_outliers
from nsmbayes.tasks import Observation

KINDS = ("far", "near", "clustered", "both-sided")


def place_outliers(clean, kind, *, fraction, distance=None, seed):
    rng = np.random.default_rng((9, seed))
    o = choose_outliers(len(clean), fraction=fraction, rng=rng)
    return Observation(np.where(o[:, None], clean + 10 * (distance or 30) * clean.std(axis=0), clean), clean, o)
