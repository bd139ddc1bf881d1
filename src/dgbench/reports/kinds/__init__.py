"""One file for each kind of report: it puts tables, figures and sentences together."""
