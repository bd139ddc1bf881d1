"""Reads what other tools wrote into the same rows that our own runs have."""

#: how the code version of an imported run starts
IMPORTED = "imported"
