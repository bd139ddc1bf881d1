"""Lightning callbacks: rows, checkpoints, progress, W&B."""
