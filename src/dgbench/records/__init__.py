"""Everything that a run leaves on disk: rows, status, locks, and files that are written whole.

Imports no torch.
"""
