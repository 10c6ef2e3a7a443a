"""Posteriors: the common interface, and the classes of all kinds."""

from nsmbayes.posteriors.amortised import AmortisedPosterior
from nsmbayes.posteriors.base import LOW_WEIGHT, Posterior, Provenance
from nsmbayes.posteriors.batch import ConjugateBatch, PosteriorBatch, batch_posteriors
from nsmbayes.posteriors.conjugate import ConjugatePosterior
from nsmbayes.posteriors.empirical import Empirical
from nsmbayes.posteriors.generalised import GeneralisedPosterior, Modes
from nsmbayes.posteriors.influence import Influence
from nsmbayes.posteriors.kept import KeptStatistics, StatisticsPosterior, from_statistics
from nsmbayes.posteriors.outliers import Outlier, outlier_table
from nsmbayes.posteriors.sampled import SampledPosterior
from nsmbayes.posteriors.schema import check_shapes
from nsmbayes.posteriors.stored import StoredPosterior, load_posterior

__all__ = [
    "Posterior",
    "Provenance",
    "LOW_WEIGHT",
    "ConjugatePosterior",
    "ConjugateBatch",
    "AmortisedPosterior",
    "KeptStatistics",
    "StatisticsPosterior",
    "from_statistics",
    "PosteriorBatch",
    "batch_posteriors",
    "SampledPosterior",
    "GeneralisedPosterior",
    "StoredPosterior",
    "load_posterior",
    "check_shapes",
    "Modes",
    "Empirical",
    "Influence",
    "Outlier",
    "outlier_table",
]
