"""Campaigns: simulations in a store, written by one or many processes, and read block by block."""

from nsmbayes.priors import prior_from_json, prior_to_json, read_prior
from nsmbayes.simulators.campaigns.campaign import Campaign, Failures, Progress, require_valid
from nsmbayes.simulators.campaigns.merge import merge_campaigns
from nsmbayes.simulators.campaigns.run import as_campaign_simulator, simulate

__all__ = [
    "simulate",
    "as_campaign_simulator",
    "Campaign",
    "Progress",
    "Failures",
    "require_valid",
    "merge_campaigns",
    "prior_from_json",
    "prior_to_json",
    "read_prior",
]
