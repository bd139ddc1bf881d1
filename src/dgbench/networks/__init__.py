"""Featurizers and the networks that algorithms ask for."""
