"""`python -m hpcserve.router`."""

import sys

from hpcserve.router.main import main

sys.exit(main(sys.argv[1:]))
