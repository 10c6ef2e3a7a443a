"""Interoperability: what other packages have made, converted for this one."""
