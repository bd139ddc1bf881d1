"""What is drawn, and the style that all figures share."""
