"""The contract of an algorithm, and the pieces that algorithms share."""
