"""Writes what reports are made of: tables, figures, pages, and text for a terminal."""
