"""Published results: entries of ``results/``, how they are packed, checked and listed."""
