"""How weights move: averages over steps, and what else surrounds an objective."""
