"""Reports beside the core: each imports the core, and nothing of the core imports one of them."""
