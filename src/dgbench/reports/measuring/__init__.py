"""Errors in numbers: measures of every algorithm, how sure they are, and settings side by side."""
