"""From run folders to tables, figures and pages. Everything here is a function of rows; no torch."""
