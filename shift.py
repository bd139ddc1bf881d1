from dgbench.cli.shift import shift

if __name__ == "__main__":  # worker processes import this file too
    shift()
