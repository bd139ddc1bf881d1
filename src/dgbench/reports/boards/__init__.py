"""Leaderboards and oracle leakage: test accuracies as frames, their tables and figures."""
