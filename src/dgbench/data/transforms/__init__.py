"""What is done to images: augmentation, corruptions, painted features."""
