"""Interoperability: conversion of objects from other packages."""

from nsmbayes.interop.sbi import adopt as adopt
from nsmbayes.interop.sbi import density_from_sbi as density_from_sbi
from nsmbayes.interop.sbi import from_sbi as from_sbi

__all__ = ["from_sbi", "adopt", "density_from_sbi"]
