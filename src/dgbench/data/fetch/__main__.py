"""``python -m dgbench.data.fetch pacs``."""

import sys

from dgbench.data.fetch.command import main


def command() -> None:
    """End with the exit code of the words that were typed; Ctrl-C is told in one line."""
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("dgbench: interrupted; the same command continues where this one stopped", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    command()
