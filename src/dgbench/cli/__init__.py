"""Wiring of the command line; only this package and ``conf`` know concrete classes."""
