"""Lightning callbacks: rows, checkpoints, progress, loggers."""
