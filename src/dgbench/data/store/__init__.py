"""Where images and features live: memory, files, caches."""
