from dgbench.cli.train import train

if __name__ == "__main__":  # worker processes import this file too
    train()
