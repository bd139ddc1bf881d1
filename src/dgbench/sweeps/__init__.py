"""Sweeps: which jobs there are, what is left of them, and who runs them.

No torch here: a sweep starts at once.
"""
