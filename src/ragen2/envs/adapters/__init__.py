"""Environments of other packages behind our interface, and ours behind theirs. Each adapter loads its package on use."""
