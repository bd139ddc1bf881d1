from dgbench.cli.train import train

train()
