"""The studies of one setting: selected steps, errors and measures as frames, their tables and sentences."""
