"""Environments, their images and labels, and the minibatches drawn from them."""
