"""Estimators of dataset shift between two sides p and q: pure functions of arrays, no torch, no files."""
