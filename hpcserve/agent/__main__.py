"""`python -m hpcserve.agent`."""

import sys

from hpcserve.agent.command_line import main

if __name__ == "__main__":
    sys.exit(main())
