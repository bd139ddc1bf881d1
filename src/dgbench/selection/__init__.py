"""Which evaluated step counts, and which draw of a search."""
