"""A simulated InfiniBand fabric: ibsim with a net of ours, and the real tools run against it."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.site.infiniband_text.wiring import Wiring

# Where Debian's libumad2sim0 puts what stands between the tools and the kernel.
UMAD2SIM = next(Path("/usr/lib").glob("*/umad2sim/libumad2sim.so"), None)
PROGRAMS = ("ibsim", "opensm", "ibnetdiscover", "iblinkinfo", "ibstat")
SBIN = f"{os.environ.get('PATH', '')}:/usr/sbin"
DEADLINE_S = 20


@dataclass(frozen=True, kw_only=True)
class Fabric:
    """A fabric that is up, seen from one of its hosts."""

    process: subprocess.Popen[str]
    directory: Path
    environment: dict[str, str]

    def ask(self, *command: str) -> str:
        """What a tool prints, seen from the host of attachment; it must succeed."""
        done = subprocess.run(
            command, cwd=self.directory, env=self.environment, capture_output=True, text=True, check=False,
            timeout=DEADLINE_S,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def manage(self) -> None:
        """One sweep of a subnet manager: it gives LIDs and makes links active."""
        self.ask("opensm", "-o", "-f", str(self.directory / "opensm.log"))

    def unlink(self, node: str, port: int) -> None:
        """Pull a cable."""
        assert self.process.stdin is not None
        self.process.stdin.write(f'Unlink "{node}"[{port}]\n')
        self.process.stdin.flush()


@contextmanager
def simulated(wiring: Wiring, directory: Path) -> Iterator[Fabric]:
    """A fabric with this wiring, until the end of the block. Its sockets have a name of their own."""
    missing = [program for program in PROGRAMS if shutil.which(program, path=SBIN) is None]
    if missing or UMAD2SIM is None:
        pytest.fail("needs Debian's ibsim-utils, opensm and infiniband-diags", pytrace=False)
    (directory / "net").write_text(wiring.for_ibsim())
    environment = os.environ | {
        "PATH": SBIN,
        "IBSIM_SOCKNAME": f"hpcserve-{os.getpid()}-{directory.name}"[:60],
        "OSM_TMP_DIR": str(directory),
        "OSM_CACHE_DIR": str(directory),
    }
    size = ("-N", "2048", "-S", "256", "-P", "20000")
    process = subprocess.Popen(
        ["ibsim", "-s", *size, "net"], cwd=directory, env=environment, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if "simulator ready" in line:
                break
        else:
            pytest.fail("ibsim ended: " + "".join(said))
        attached = environment | {"SIM_HOST": wiring.adapters[0], "LD_PRELOAD": str(UMAD2SIM)}
        yield Fabric(process=process, directory=directory, environment=attached)
    finally:
        process.kill()
        process.communicate()
