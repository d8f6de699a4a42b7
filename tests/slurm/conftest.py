"""What the cluster's tests share: a command line for clusters in a directory of the test's own."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# The cluster's code is no part of the installed package.
sys.path.insert(0, str(ROOT))


@dataclass(frozen=True, kw_only=True)
class Clusters:
    """Runs `slurm/cluster` with everything that it keeps below `directory`."""

    directory: Path

    def environment(self) -> dict[str, str]:
        return os.environ | {"HPCSERVE_CLUSTER_DIR": str(self.directory)}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [ROOT / "slurm/cluster", *arguments],
            env=self.environment(),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(
        self, *arguments: str, code: int = 0, text_in: str = "", cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run to the end; its exit code must be `code`."""
        done = subprocess.run(
            [ROOT / "slurm/cluster", *arguments],
            env=self.environment(),
            text=True,
            capture_output=True,
            check=False,
            input=text_in,
            cwd=cwd,
            timeout=100,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def processes(self) -> list[str]:
        """Command lines that name the directory, and so all daemons of its clusters."""
        lines = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                except (FileNotFoundError, ProcessLookupError):
                    continue
                if str(self.directory) in line:
                    lines.append(line)
        return lines

    def mounts(self) -> list[str]:
        return [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(self.directory) in line]

    def assert_nothing_left(self) -> None:
        assert self.processes() == []
        assert self.mounts() == []
        assert not self.directory.exists()


@pytest.fixture(scope="module")
def clusters() -> Iterator[Clusters]:
    """Clusters in one directory for the module; nothing may be left of them."""
    # Not pytest's own folder: unix sockets need a short path.
    directory = Path(tempfile.mkdtemp(prefix="onebox-", dir="/var/tmp"))
    directory.rmdir()  # the first cluster makes it, the last one to go removes it
    made = Clusters(directory=directory)
    yield made
    for record in directory.glob("*/cluster.json"):
        made.run("down", "--name", record.parent.name)
    assert made.processes() == []
    shutil.rmtree(directory, ignore_errors=True)
