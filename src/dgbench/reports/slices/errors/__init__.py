"""Which images are wrong: everything that ``report=errors`` computes from ``predictions.parquet``."""
