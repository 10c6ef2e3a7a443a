"""Baselines for comparison, each with its own networks, kernels and summaries."""

from nsmbayes.methods.baselines.ace import ACE as ACE
from nsmbayes.methods.baselines.gbi_sr import GBISR as GBISR
from nsmbayes.methods.baselines.npe import NPE as NPE
from nsmbayes.methods.baselines.npe_rs import NPERS as NPERS
from nsmbayes.methods.baselines.npl_mmd import NPLMMD as NPLMMD
from nsmbayes.methods.baselines.rsnle import RSNLE as RSNLE
