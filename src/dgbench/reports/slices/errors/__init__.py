"""Which images are wrong: what ``report=errors`` computes from ``predictions.parquet``."""
