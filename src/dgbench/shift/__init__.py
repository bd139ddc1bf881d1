"""Dataset shift as one slice: estimators, their job, and their report."""
