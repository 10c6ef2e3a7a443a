"""Networks of the baselines."""

from nsmbayes.methods.baselines.networks.cost_network import CostNetwork as CostNetwork
from nsmbayes.methods.baselines.networks.cost_network import init_cost_network as init_cost_network
from nsmbayes.methods.baselines.networks.coupling import CouplingFlow as CouplingFlow
from nsmbayes.methods.baselines.networks.coupling import init_coupling_flow as init_coupling_flow
from nsmbayes.methods.baselines.networks.deep_set import DeepSet as DeepSet
from nsmbayes.methods.baselines.networks.posterior_flow import PosteriorFlow as PosteriorFlow
from nsmbayes.methods.baselines.networks.posterior_flow import init_posterior_flow as init_posterior_flow
