"""dgbench: domain generalization experiments whose numbers can be trusted."""

__version__ = "0.1.0"
