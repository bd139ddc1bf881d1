"""What a command means: its studies with their folds, hyperparameters and identities. No torch."""
