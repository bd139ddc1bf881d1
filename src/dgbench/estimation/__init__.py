"""Estimating dataset shift: a job that trains the classifiers which the estimators of ``dgbench.shifts`` need."""
