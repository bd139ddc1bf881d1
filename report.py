from dgbench.cli.report import report

report()
