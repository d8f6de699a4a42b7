"""Quoting, held against a real bash."""

import json
import string
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcserve.render.shell import UnquotableError, as_comment, home_path, quoted, words, wrapped_command

NASTY = [
    "",
    " ",
    "a b",
    "it's",
    '"',
    "$HOME",
    "`id`",
    "$(id)",
    "a\nb",
    "\t",
    "\\",
    "!x",
    "é",
    "日本",
    "*",
    "~",
    "#",
    "-n",
    "\r",
]
SHOW = [sys.executable, "-c", "import json, sys; print(json.dumps(sys.argv[1:]))"]

texts = st.one_of(
    st.sampled_from(NASTY),
    st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    st.text(alphabet=string.printable, max_size=30),
)


def run_bash(script: str) -> str:
    return subprocess.run(["bash"], input=script.encode(), capture_output=True, check=True).stdout.decode()


@settings(deadline=None, max_examples=40)
@given(st.lists(texts, min_size=1, max_size=12))
def test_bash_reads_every_word_back_unchanged(argv: list[str]) -> None:
    assert json.loads(run_bash(f"{words([*SHOW, *argv])}\n")) == argv
    assert json.loads(run_bash(f"exec {wrapped_command([*SHOW, *argv])}\n")) == argv


@settings(deadline=None, max_examples=25)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_nothing_in_a_comment_reaches_bash(text: str) -> None:
    comment = as_comment(text)
    assert all(line.startswith("#") for line in comment.split("\n"))
    assert run_bash(f"{comment}\n") == ""


def test_a_command_has_each_option_on_its_own_line() -> None:
    text = wrapped_command(["vllm", "serve", "/m", "--port", "1", "--enforce-eager", "--served-model-name", "a b"])
    assert text == "vllm serve /m \\\n    --port 1 \\\n    --enforce-eager \\\n    --served-model-name 'a b'"


@pytest.mark.parametrize("value", ["a\0b", "\ud800"])
def test_what_no_shell_can_carry_is_refused(value: str) -> None:
    with pytest.raises(UnquotableError):
        quoted(value)


def test_a_home_path_is_the_home_of_whoever_runs_it(tmp_path: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", f"echo {home_path('~/a b/$x')} {home_path('~')} {home_path('/r/~')}"],
        env={"HOME": str(tmp_path / "my home")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{tmp_path}/my home/a b/$x {tmp_path}/my home /r/~\n"
