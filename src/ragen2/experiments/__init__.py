"""Experiments: runs made on purpose, to see what the diagnosis says of them."""
