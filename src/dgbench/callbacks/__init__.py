"""Lightning callbacks: rows, status marks, checkpoints, progress, W&B."""
