"""Robust location and scatter of the observations, which define the distances in the weights."""

from nsmbayes.scatter.atoms import beside_atoms
from nsmbayes.scatter.batch import fit_batch, mcd_batch
from nsmbayes.scatter.fit import fit_location_scatter, fit_many
from nsmbayes.scatter.guided import fit_guided
from nsmbayes.scatter.location_scatter import ESTIMATORS, LocationScatter

__all__ = [
    "LocationScatter",
    "ESTIMATORS",
    "fit_location_scatter",
    "fit_many",
    "fit_guided",
    "beside_atoms",
    "fit_batch",
    "mcd_batch",
]
