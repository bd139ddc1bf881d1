"""Folds, and hyperparameter spaces with their draws. No torch."""
