"""Surrogates: conditional density models q(x | theta) that networks learn from simulations."""

from nsmbayes.surrogates.base import Density as Density
from nsmbayes.surrogates.base import Derivatives as Derivatives
from nsmbayes.surrogates.base import Frame as Frame
from nsmbayes.surrogates.base import Surrogate as Surrogate
from nsmbayes.surrogates.configs import MAF as MAF
from nsmbayes.surrogates.configs import MDN as MDN
from nsmbayes.surrogates.configs import Scalers as Scalers
from nsmbayes.surrogates.configs import SurrogateConfig as SurrogateConfig
from nsmbayes.surrogates.configs import as_surrogate as as_surrogate
from nsmbayes.surrogates.exponential_family import ExponentialFamily as ExponentialFamily
from nsmbayes.surrogates.exponential_family import FamilyDerivatives as FamilyDerivatives
from nsmbayes.surrogates.exponential_family import NoisyFamily as NoisyFamily
from nsmbayes.surrogates.exponential_family import TanhNetwork as TanhNetwork
from nsmbayes.surrogates.exponential_family import init_exponential_family as init_exponential_family
from nsmbayes.surrogates.exponential_family import init_noisy_family as init_noisy_family
from nsmbayes.surrogates.maf import MaskedAutoregressiveFlow as MaskedAutoregressiveFlow
from nsmbayes.surrogates.maf import init_masked_autoregressive_flow as init_masked_autoregressive_flow
from nsmbayes.surrogates.mdn import MixtureDensity as MixtureDensity
from nsmbayes.surrogates.mdn import MixtureDensityNetwork as MixtureDensityNetwork
from nsmbayes.surrogates.mdn import init_mixture_density_network as init_mixture_density_network
from nsmbayes.surrogates.noisy_flow import NoisyFlow as NoisyFlow
from nsmbayes.surrogates.noisy_flow import init_noisy_flow as init_noisy_flow
from nsmbayes.surrogates.scaling import Standardiser as Standardiser
from nsmbayes.surrogates.scaling import fit_standardiser as fit_standardiser
from nsmbayes.surrogates.smoothness import require_smooth as require_smooth
