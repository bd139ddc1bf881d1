"""Trained models as things: loaded, evaluated on any dataset, handed on."""
