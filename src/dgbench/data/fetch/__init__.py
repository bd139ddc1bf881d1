"""Downloading datasets: ``dgbench fetch NAME``."""
