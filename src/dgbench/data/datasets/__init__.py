"""The datasets: which environments exist, and which images they hold."""
