"""From run folders and archives to runs and rows; whatever cannot be used is named."""
