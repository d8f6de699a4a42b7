"""Programs that stand for those of a cluster with two kinds of nodes; of the first kind the first node is busy."""

import os
from pathlib import Path

import pytest

from tests.site.learning.texts import IBSTAT, show_config, show_node, show_partition

SRUN = """\
#!/bin/bash
# Runs the last argument here, as srun would there, and says which node was wanted and what it was started with.
for word; do case $word in --nodelist=*) echo "${word#--nodelist=}" >> "$ASKED";; esac; done
printf '%s\\n' "${@:1:$#-1}" > "$ASKED.options"
env > "$ASKED.environment"
exec bash -c "${!#}"
"""


def tool(folder: Path, name: str, script: str) -> None:
    """Put a program there."""
    (folder / name).write_text(script)
    (folder / name).chmod(0o755)


def set_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the programs into `folder`, and it first on the PATH; srun notes what it was asked in `folder/asked*`."""
    nodes = show_node(["gn01", "gn02"]) + show_node(["hn1"], gres="gpu:h100:8")
    nodes = nodes.replace("State=IDLE", "State=ALLOCATED", 1)
    for name, text in {"node": nodes, "partition": show_partition("gn[01-02],hn1"), "config": show_config()}.items():
        (folder / name).write_text(text)
    tool(folder, "scontrol", f'#!/bin/bash\ncat "{folder}/$2" 2>/dev/null || {{ echo "no $2" >&2; exit 1; }}\n')
    tool(folder, "srun", SRUN)
    tool(folder, "ibnetdiscover", "#!/bin/bash\necho 'ibpanic: no rights' >&2\nexit 1\n")
    (folder / "ibstat.txt").write_text(IBSTAT)
    tool(folder, "ibstat", f"#!/bin/bash\ncat {folder}/ibstat.txt\n")
    tool(folder, "nvidia-smi", "#!/bin/bash\necho 'NVIDIA-SMI has failed'\nexit 9\n")
    monkeypatch.setenv("ASKED", str(folder / "asked"))
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder
