"""Folds, members and model selection. No torch."""
