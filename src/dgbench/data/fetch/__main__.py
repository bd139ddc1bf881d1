"""``python -m dgbench.data.fetch pacs``."""

import sys

from dgbench.data.fetch.command import main

if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("dgbench: interrupted; the same command continues where this one stopped", file=sys.stderr)
        sys.exit(130)
