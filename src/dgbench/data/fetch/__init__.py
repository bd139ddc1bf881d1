"""Downloading datasets: ``python -m dgbench.data.fetch NAME``."""
