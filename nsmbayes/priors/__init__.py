"""Priors: those of this package, those of numpyro, torch and scipy, and their maps to the unconstrained space R^d."""

from nsmbayes.priors.convert import as_gaussian as as_gaussian
from nsmbayes.priors.convert import as_prior as as_prior
from nsmbayes.priors.documents import FAMILIES as FAMILIES
from nsmbayes.priors.documents import prior_from_json as prior_from_json
from nsmbayes.priors.documents import prior_to_json as prior_to_json
from nsmbayes.priors.documents import read_prior as read_prior
from nsmbayes.priors.gaussian import GaussianPrior as GaussianPrior
from nsmbayes.priors.gaussian import same_dimension as same_dimension
from nsmbayes.priors.independent import IndependentPrior as IndependentPrior
from nsmbayes.priors.product import Product as Product
from nsmbayes.priors.unconstrained import UnconstrainedPrior as UnconstrainedPrior
from nsmbayes.priors.unconstrained import another_prior as another_prior
from nsmbayes.priors.unconstrained import constrain_rows as constrain_rows
from nsmbayes.priors.unconstrained import draw_prior as draw_prior
from nsmbayes.priors.unconstrained import unconstrain_rows as unconstrain_rows
from nsmbayes.priors.unconstrained import unconstrained as unconstrained
