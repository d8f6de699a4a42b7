"""Slurm's commands as small programs on PATH."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

Commands = Callable[..., Path]


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    """Put commands on PATH: name -> bash text. Each writes its words and environment to `NAME.words`, `NAME.env`."""

    def install(**bodies: str) -> Path:
        folder = tmp_path / "commands"
        folder.mkdir(exist_ok=True)
        for name, body in bodies.items():
            program = folder / name
            program.write_text(f'#!/bin/bash\nprintf "%s\\n" "$@" >"{program}.words"; env >"{program}.env"\n{body}\n')
            program.chmod(0o755)
        tools = [path for path in ("/usr/bin", "/bin") if Path(path).is_dir()]
        only = tmp_path / "tools"
        only.mkdir(exist_ok=True)
        for tool in ("bash", "env", "setsid", "cat", "sleep", "mv", "rm", "head", "touch", "python3"):
            found = next((Path(path) / tool for path in tools if (Path(path) / tool).exists()), None)
            if found is not None and not (only / tool).exists():
                (only / tool).symlink_to(found)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{only}")
        return folder

    return install
