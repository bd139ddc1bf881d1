"""One dataset in several settings: tables and sentences over all of them."""
