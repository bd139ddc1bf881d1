from dgbench.cli.report import report

if __name__ == "__main__":  # figures are saved by another process, which imports this file
    report()
