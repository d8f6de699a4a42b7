"""Runs `slurm/cluster`: checks the interpreter, then hands the arguments to the command line."""

import sys
from pathlib import Path

if sys.version_info < (3, 11):  # noqa: UP036  (whatever python3 is first on PATH runs this)
    sys.exit(f"slurm/cluster needs Python 3.11 or newer; {sys.executable} is {sys.version.split()[0]}")

# Python puts this folder itself on the path; its modules are found from the repository's root.
sys.path[0] = str(Path(__file__).resolve().parents[2])

from slurm.onebox.command_line import main  # noqa: E402  (only importable after the line above)

sys.exit(main(sys.argv[1:]))
