from nsmbayes.surrogates.base import Derivatives as Derivatives
from nsmbayes.surrogates.base import Surrogate as Surrogate
from nsmbayes.surrogates.expfam import ExponentialFamily as ExponentialFamily
from nsmbayes.surrogates.expfam import FamilyDerivatives as FamilyDerivatives
from nsmbayes.surrogates.expfam import TanhNetwork as TanhNetwork
from nsmbayes.surrogates.expfam import init_exponential_family as init_exponential_family
from nsmbayes.surrogates.scaling import Standardiser as Standardiser
from nsmbayes.surrogates.scaling import fit_standardiser as fit_standardiser
