"""Whole bytes of every script of every site; a file too many or too few fails too."""

import subprocess
from functools import cache

import pytest

from tests.golden.cases import CASES, HERE, OWN_SITES, SITES, case, shown_site

_kept = cache(case)
"""Each case once: a search for the best seats of a large site takes seconds."""


def test_every_shipped_site_has_a_golden_job() -> None:
    assert {name.partition(".")[0] for name in CASES} == {*SITES, *OWN_SITES}


@pytest.mark.parametrize("name", CASES)
def test_the_scripts_are_as_they_were_reviewed(name: str) -> None:
    folder = HERE / "jobs" / name
    kept = {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    made = {path: text.encode() for path, text in _kept(name).scripts.items()}
    assert made == kept, "look at the difference; `python -m tests.golden.write` writes the files anew"


@pytest.mark.parametrize("name", CASES)
def test_the_same_inputs_give_the_same_bytes(name: str) -> None:
    first, second = _kept(name), case(name)
    assert first.job == second.job
    assert first.scripts == second.scripts


@pytest.mark.parametrize("name", CASES)
def test_bash_can_read_every_script(name: str) -> None:
    for path, text in _kept(name).scripts.items():
        if path.endswith((".sh", ".sbatch")):
            done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
            assert done.returncode == 0, f"{path}: {done.stderr}"
            assert done.stderr == ""


@pytest.mark.parametrize("name", CASES)
def test_no_key_stands_in_any_script(name: str) -> None:
    rendered = _kept(name)
    for path, text in rendered.scripts.items():
        assert "a" * 64 not in text, path
        assert "e" * 64 not in text, path
    assert rendered.job.file("keys/api.key").mode == 0o600


def test_every_shipped_site_is_shown_as_it_was_reviewed() -> None:
    kept = {path.stem: path.read_bytes() for path in (HERE / "sites").iterdir()}
    assert {name: shown_site(name).encode() for name in SITES} == kept
