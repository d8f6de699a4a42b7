"""The command line as a user meets it: words, exit codes, and what is left on disk."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import click
import pytest
from click.shell_completion import get_completion_class

from hpcserve.cli.program import program, run
from hpcserve.nouns import Job, JobHandle, JobState, Plan
from hpcserve.wire import decode_record
from tests.deploy.conftest import model, service_file, site_file

__all__ = ["model", "service_file", "site_file"]

HPCSERVE = Path(sys.executable).with_name("hpcserve")
VERBS = sorted(program.commands)
Captured = pytest.CaptureFixture[str]

SIX_MISTAKES = """\
schema: hpcserve.service/1
name: chat one
model: SmolLM2-135M-Instruct
served_name: smollm2
engin: sim
mode: separate
partition: null
time: 1:30
pools:
  - role: prefill
    workers: zero
  - role: decode
    workers: 1
slo: {ttft_ms: 1000.0, tpot_ms: 150.0}
workload: {input_tokens: 512, output_tokens: -1}
"""


def tree(root: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(root.rglob("*"))}


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_CONFIG_HOME", "HPCSERVE_SITE", "HPCSERVE_JOBS_DIR", "HPCSERVE_DEBUG"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("verb", ["plan", "render", "submit"])
def test_six_mistakes_are_all_told_with_their_place_and_nothing_is_changed(
    tmp_path: Path, site_file: Path, service_file: Path, capsys: Captured, verb: str
) -> None:
    service_file.write_text(SIX_MISTAKES)
    before = tree(tmp_path)
    assert run([verb, str(service_file), "--site", str(site_file)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    places = [
        tuple(map(int, found))
        for found in re.findall(rf"^{re.escape(str(service_file))}:(\d+):(\d+): ", told.err, re.MULTILINE)
    ]
    assert {(2, 7), (5, 1), (6, 7), (8, 7), (11, 14), (15, 46)} <= set(places)
    assert "Traceback" not in told.err
    assert tree(tmp_path) == before


def test_the_plan_is_shown_as_a_map_with_the_verdict(site_file: Path, service_file: Path, capsys: Captured) -> None:
    assert run(["plan", str(service_file), "--site", str(site_file)]) == 0
    shown = capsys.readouterr().out
    assert "prefill-0 → decode-0" in shown
    assert "Verdict:" in shown
    assert run(["plan", str(service_file), "--site", str(site_file), "--json"]) == 0
    assert decode_record(Plan, capsys.readouterr().out.encode()).service == "sim"


def test_render_writes_the_directory_and_prints_it(
    tmp_path: Path, site_file: Path, service_file: Path, capsys: Captured
) -> None:
    assert run(["render", str(service_file), "--site", str(site_file), "--jobs-dir", str(tmp_path / "my jobs")]) == 0
    directory = Path(capsys.readouterr().out.strip())
    assert directory == tmp_path / "my jobs" / "sim-1"
    assert (directory / "local.sh").is_file()
    assert run(["status", "sim", "--jobs-dir", str(tmp_path / "my jobs")]) == 3
    assert "not submitted" in capsys.readouterr().err
    assert run(["status", "--jobs-dir", str(tmp_path / "my jobs")]) == 0
    assert "not submitted" in capsys.readouterr().out


def test_no_key_is_ever_printed(site_file: Path, service_file: Path, capsys: Captured) -> None:
    assert run(["render", str(service_file), "--site", str(site_file), "--json"]) == 0
    text = capsys.readouterr().out
    job = decode_record(Job, text.encode())
    key = (Path(job.directory) / "keys" / "api.key").read_text()
    assert key not in text
    assert not [file for file in job.files if file.path.startswith("keys/")]


def test_a_dry_run_shows_the_script_and_changes_nothing(
    tmp_path: Path, site_file: Path, service_file: Path, capsys: Captured
) -> None:
    before = tree(tmp_path)
    assert run(["submit", str(service_file), "--site", str(site_file), "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "#!/bin/bash" in shown
    assert f"Would run: bash {tmp_path}/jobs/sim-1/local.sh" in shown
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([], 2),
        (["nonsense"], 2),
        (["plan"], 2),
        (["plan", "x.yaml", "--site", "nowhere"], 3),
        (["plan", "x.yaml", "--site", "local"], 3),
        (["plan", "."], 2),
        (["status", "nope"], 3),
        (["logs", "nope"], 3),
        (["url", "nope"], 3),
        (["cancel", "nope"], 3),
        (["wait", "nope"], 3),
        (["site", "check", "nowhere"], 3),
        (["submit", "x.yaml", "--site", "local", "--timeout", "1"], 2),
        (["status"], 0),
        (["site", "list"], 0),
        (["site", "check", "onebox"], 0),
        (["--version"], 0),
    ],
)
def test_exit_codes(words: list[str], code: int, capsys: Captured) -> None:
    assert run(words) == code
    assert "Traceback" not in capsys.readouterr().err


def _figures(command: click.Command, name: str) -> Iterator[tuple[str, str]]:
    """Every option of every verb that takes a number with a fraction."""
    if isinstance(command, click.Group):
        for verb, below in command.commands.items():
            yield from _figures(below, f"{name} {verb}".strip())
        return
    for parameter in command.params:
        if isinstance(parameter.type, click.types.FloatParamType):
            yield name, parameter.opts[0]


@pytest.mark.parametrize(("verb", "option"), [*_figures(program, "")])
@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e999"])
def test_what_is_no_number_is_refused_wherever_one_is_wanted(
    verb: str, option: str, value: str, capsys: Captured
) -> None:
    assert run([*verb.split(), f"{option}={value}"]) == 2
    assert f"Invalid value for '{option}'" in capsys.readouterr().err


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb: str, capsys: Captured) -> None:
    assert run([verb, "--help"]) == 0
    assert capsys.readouterr().out.startswith("Usage: hpcserve")


@pytest.mark.parametrize("verb", ["plan", "render", "submit", "status", "logs", "url", "cancel", "wait", "completion"])
def test_help_has_examples(verb: str, capsys: Captured) -> None:
    assert run([verb, "--help"]) == 0
    assert f"  hpcserve {verb}" in capsys.readouterr().out.replace("$(", "  ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str, capsys: Captured) -> None:
    assert run(["completion", shell]) == 0
    assert "_HPCSERVE_COMPLETE" in capsys.readouterr().out


def test_bash_completes_sites() -> None:
    done = subprocess.run(
        [HPCSERVE],
        env={
            **os.environ,
            "_HPCSERVE_COMPLETE": "bash_complete",
            "COMP_WORDS": "hpcserve plan --site one",
            "COMP_CWORD": "3",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert "onebox" in done.stdout


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("hpcserve site check one", "plain,onebox"),
        ("hpcserve site show one", "plain,onebox"),
        ("hpcserve plan --site my-clu", "file,my-clu"),
        ("hpcserve status cha", "plain,chat-1"),
        ("hpcserve site import --kind ibst", "plain,ibstat"),
    ],
)
def test_bash_completes_sites_jobs_and_kinds(
    words: str, offered: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    job = tmp_path / "jobs" / "chat-1"
    job.mkdir(parents=True)
    (job / "service.yaml").write_text("name: chat\n")
    (job / "plan.asked.json").write_text("{}")
    monkeypatch.setenv("HPCSERVE_JOBS_DIR", str(tmp_path / "jobs"))
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    kind = get_completion_class("bash")
    assert kind is not None
    click.echo(kind(program, {}, "hpcserve", "_HPCSERVE_COMPLETE").complete())
    assert capsys.readouterr().out.split() == [offered]


def test_a_bug_is_told_without_a_traceback_unless_asked_for(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**_words: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(program.commands["status"], "callback", broken)
    assert run(["status"]) == 70
    told = capsys.readouterr().err
    assert "ZeroDivisionError: oh" in told
    assert "Traceback" not in told
    monkeypatch.setenv("HPCSERVE_DEBUG", "1")
    assert run(["status"]) == 70
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8"])
def test_no_encoding_of_the_terminal_ends_a_command(encoding: str, site_file: Path, service_file: Path) -> None:
    def printed(*words: str | bytes) -> tuple[int, bytes, str]:
        done = subprocess.run(
            [HPCSERVE, *words],
            env={**os.environ, "PYTHONIOENCODING": encoding},
            capture_output=True,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr.decode(encoding)

    code, page, _ = printed("plan", str(service_file), "--site", str(site_file))
    assert code == 0
    assert f"prefill-0 {'→' if encoding == 'utf-8' else '?'} decode-0" in page.decode(encoding)
    text = site_file.read_text(encoding="utf-8")
    site_file.write_text(
        re.sub(r"^description: .*$", "description: à → 🦙", text, flags=re.MULTILINE), encoding="utf-8"
    )
    code, document, _ = printed("site", "check", str(site_file), "--json")
    assert (code, json.loads(document)["description"]) == (0, "à → 🦙")
    code, _, told = printed("site", "check", os.fsencode(site_file) + b"\xff.yaml")
    assert (code, "bug" in told) == (3, False)


def test_ctrl_c_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(**_words: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(program.commands["status"], "callback", interrupted)
    assert run(["status"]) == 130


def test_a_broken_site_file_hides_no_job_of_the_others(tmp_path: Path, capsys: Captured) -> None:
    folder = tmp_path / "home" / ".config" / "hpcserve" / "sites"
    folder.mkdir(parents=True)
    (folder / "broken.yaml").write_text("partiton: h100\n")
    assert run(["status"]) == 0
    told = capsys.readouterr()
    assert "no jobs in " in told.out
    assert str(tmp_path / "home") in told.out
    assert "broken.yaml" in told.err
    assert run(["site", "check", "broken"]) == 2
    assert "did you mean `partitions`" in capsys.readouterr().err
    assert run(["site", "list"]) == 0
    assert "mistakes" in capsys.readouterr().out


def test_jobs_of_a_site_that_has_no_name_are_found_by_the_variable(
    tmp_path: Path, site_file: Path, service_file: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    site_file.write_text(re.sub(r"jobs: .*", f"jobs: {tmp_path / 'elsewhere'}", site_file.read_text()))
    assert run(["render", str(service_file), "--site", str(site_file)]) == 0
    made = Path(capsys.readouterr().out.strip())
    assert run(["status"]) == 0
    assert made.name not in capsys.readouterr().out
    assert run(["logs", made.name]) == 3
    assert "set HPCSERVE_SITE" in capsys.readouterr().err
    monkeypatch.setenv("HPCSERVE_SITE", str(site_file))
    assert run(["status"]) == 0
    assert made.name in capsys.readouterr().out
    monkeypatch.setenv("HPCSERVE_SITE", "nowhere.yaml")
    assert run(["status"]) == 0
    assert "nowhere.yaml" in capsys.readouterr().err


AGENT = """\
#!/bin/bash
cd -- {{ directory }} || exit 1
export HPCSERVE_JOB={{ directory }}
echo "agent of $HPCSERVE_NODE"
if [[ -e ../fail ]]; then
  echo "exploded" >logs/decode-0.log
  echo '{"schema": "hpcserve.failed/1", "reason": "no worker is left", "where": "decode-0", "life": "0"}' >failed.json
  exit 3
fi
trap 'exit 0' TERM
sleep 100 &
trap "kill $!; exit 0" TERM
wait $!
"""


@pytest.fixture
def stand_in_agent(tmp_path: Path) -> None:
    """The agent's script, in the user's own template folder, so that nothing is served but everything else is real."""
    folder = tmp_path / "home" / ".config" / "hpcserve" / "job_templates"
    folder.mkdir(parents=True)
    (folder / "agent.sh.j2").write_text(AGENT)


@pytest.mark.usefixtures("stand_in_agent")
def test_a_local_job_from_submit_to_cancel(
    site_file: Path, service_file: Path, tmp_path: Path, capsys: Captured
) -> None:
    jobs = ["--jobs-dir", str(tmp_path / "jobs")]
    assert run(["submit", str(service_file), "--site", str(site_file), "--json"]) == 0
    handle = decode_record(JobHandle, capsys.readouterr().out.encode())
    try:
        assert run(["status", "sim", "--json", *jobs]) == 0
        state = decode_record(JobState, capsys.readouterr().out.encode())
        assert (state.phase, state.url, state.scheduler_state) == ("starting", None, "RUNNING")
        assert run(["wait", handle.name, "--timeout", "0.1", *jobs]) == 8
        assert "not ready after 0.1 s" in capsys.readouterr().err
        words = [str(HPCSERVE), "wait", handle.directory]
        with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as waiting, ExitStack() as stack:
            stack.callback(waiting.kill)
            assert waiting.stderr is not None
            assert "starting" in waiting.stderr.readline()
            waiting.send_signal(signal.SIGINT)
            told = waiting.stderr.read()
            assert waiting.wait(timeout=20) == 130
        assert f"hpcserve cancel {handle.name}" in told
        assert "Traceback" not in told
        assert run(["url", handle.id, *jobs]) == 7
        assert "hpcserve wait sim-1" in capsys.readouterr().err
        assert run(["logs", "sim-1", "local", *jobs]) == 0
        assert "agent of local1" in capsys.readouterr().out
    finally:
        assert run(["cancel", "sim-1", *jobs]) == 0
    capsys.readouterr()
    assert run(["status", "--json", *jobs]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert (listed["name"], listed["state"]["phase"]) == ("sim-1", "ended")
    assert run(["cancel", "sim-1", *jobs]) == 0
    assert "had ended before" in capsys.readouterr().out
    assert run(["wait", "sim-1", *jobs]) == 7


@pytest.mark.usefixtures("stand_in_agent")
def test_a_job_that_fails_is_told_with_its_reason(
    site_file: Path, service_file: Path, tmp_path: Path, capsys: Captured
) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "fail").touch()
    assert run(["submit", str(service_file), "--site", str(site_file), "--wait", "--timeout", "60"]) == 7
    told = capsys.readouterr().err
    assert "decode-0: no worker is left" in told
    assert "hpcserve logs sim-1" in told
    assert run(["logs", "sim-1", "decode-0", "--jobs-dir", str(tmp_path / "jobs")]) == 0
    assert capsys.readouterr().out == "exploded\n"
    assert run(["logs", "sim-1", "nobody", "--jobs-dir", str(tmp_path / "jobs")]) == 3
