"""Accuracies in numbers: leaderboards, scores, published tables beside ours, leakage."""
