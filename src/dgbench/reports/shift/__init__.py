"""Estimates of dataset shift: frames of them, tables, and what they allow to say."""
