"""What a person may name by mistake: found, wanted, what to do; never a traceback, and nothing is waited for."""

import contextlib
import os
import pwd
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hpcserve.cli.program import run
from tests.deploy.conftest import write_model, write_service, write_site
from tests.golden.cases import ROOT
from tests.model.configs import text_of

Captured = pytest.CaptureFixture[str]

ONEBOX = (Path(__file__).parents[2] / "site_configs/onebox.yaml").read_text()
A_SITE = "the name of a site or its file was wanted"
A_MODEL = "a model's folder, its config.json, or a Hugging Face id was wanted"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "HF_HOME", "HF_HUB_CACHE", "HPCSERVE_SITE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def told(capsys: Captured, *words: str, code: int) -> str:
    """The one line on stderr; nothing is printed besides."""
    assert run([*words]) == code
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    return line


def folder(path: Path) -> None:
    path.mkdir()


def pipe(path: Path) -> None:
    os.mkfifo(path)


def site_file(path: Path) -> None:
    path.write_text(ONEBOX)


@pytest.mark.parametrize(
    ("name", "make", "words"),
    [
        ("sites", folder, ("sites: a directory", "name a file in it: sites/NAME.yaml")),
        ("./sites", folder, ("./sites: a directory", "name a file in it: sites/NAME.yaml")),
        ("sites.yaml", folder, ("sites.yaml: a directory", "name a file in it: sites.yaml/NAME.yaml")),
        ("mine", site_file, ("mine: no site's name, but a file", "write ./mine for the file")),
        ("mine.conf", site_file, ("mine.conf: no site's name, but a file", "write ./mine.conf for the file")),
        ("./pipe", pipe, ("./pipe: a named pipe", "save what it holds to a file first")),
        ("pipe", pipe, ("pipe: a named pipe", "save what it holds to a file first")),
        ("/dev/null", None, ("/dev/null: a character device", "save what it holds to a file first")),
        ("/dev/zero", None, ("/dev/zero: a character device", "save what it holds to a file first")),
        ("", None, ("nothing is named", "`hpcserve site list` shows the names")),
    ],
)
def test_site_check_of_what_is_no_site_file(
    here: Path, capsys: Captured, name: str, make: Callable[[Path], None] | None, words: tuple[str, str]
) -> None:
    if make is not None:
        make(here / name)
    assert told(capsys, "site", "check", name, code=3) == f"error: {words[0]}; {A_SITE}; {words[1]}"


def test_site_check_of_a_file_that_is_written_as_a_path_needs_no_suffix(here: Path, capsys: Captured) -> None:
    site_file(here / "mine.conf")
    assert run(["site", "check", "./mine.conf"]) == 0
    assert "onebox" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["./none.yaml", "none.yml", "none/", "mine.conf/none.yaml"])
def test_site_check_of_a_path_where_nothing_is(here: Path, capsys: Captured, name: str) -> None:
    site_file(here / "mine.conf")
    assert told(capsys, "site", "check", name, code=3).startswith(f"error: no site file {name}; check the path")


@pytest.mark.parametrize(
    ("name", "make", "words"),
    [
        ("pipe", pipe, ("pipe: a named pipe", "save what it holds to a file first")),
        ("./pipe", pipe, ("pipe: a named pipe", "save what it holds to a file first")),
        ("/dev/zero", None, ("/dev/zero: a character device", "save what it holds to a file first")),
        ("/dev/null", None, ("/dev/null: a character device", "save what it holds to a file first")),
        ("./none", None, ("no file or folder ./none", "check the path")),
        ("/none/config.json", None, ("no file or folder /none/config.json", "check the path")),
        ("none.json", None, ("no file or folder none.json", "check the path")),
        ("", None, ("nothing is named", "name one: hpcserve model show ~/models/NAME")),
    ],
)
def test_model_show_of_what_is_no_model(
    here: Path, capsys: Captured, name: str, make: Callable[[Path], None] | None, words: tuple[str, str]
) -> None:
    if make is not None:
        make(here / name)
    assert told(capsys, "model", "show", name, code=3) == f"error: {words[0]}; {A_MODEL}; {words[1]}"


def test_model_show_of_a_folder_whose_config_is_a_pipe_or_a_folder_or_not_there(here: Path, capsys: Captured) -> None:
    folder(here / "m")
    assert told(capsys, "model", "show", "m", code=3).startswith("error: m has no config.json: it is no Hugging Face")
    pipe(here / "m/config.json")
    assert told(capsys, "model", "show", "m", code=3).startswith("error: m/config.json: a named pipe; ")
    (here / "m/config.json").unlink()
    folder(here / "m/config.json")
    assert told(capsys, "model", "show", "m", code=3).startswith("error: m/config.json: a directory; ")


def test_model_show_waits_for_no_pipe_beside_the_config(here: Path, capsys: Captured) -> None:
    folder(here / "m")
    (here / "m/config.json").write_text(text_of("Llama-3.1-8B"))
    pipe(here / "m/model.safetensors")
    folder(here / "m/more.safetensors")
    assert run(["model", "show", "m"]) == 0
    assert "16,060,522,496 B" in capsys.readouterr().out


def test_a_name_that_may_be_an_id_is_told_how_it_is_fetched(capsys: Captured) -> None:
    line = told(capsys, "model", "show", "acme/tiny-1.5B", code=3)
    assert "looked in" in line
    assert line.endswith("fetch it first: huggingface-cli download acme/tiny-1.5B config.json")


def test_what_no_file_system_takes_is_told_with_what_to_do(capsys: Captured) -> None:
    for verb in (("site", "check"), ("model", "show")):
        line = told(capsys, *verb, "x" * 5000, code=1)
        assert line.endswith(
            "File name too long; a file that can be read was wanted; check the path and its permissions"
        )
        assert len(line) < 300
        line = told(capsys, *verb, "~nobody-has-this-name/x.yaml", code=3)
        assert "the home directory of that user is not known; write the whole path, or set HOME" in line


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """Without the rights of root, who may read everything; any other user stays who they are."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(pwd.getpwnam("nobody").pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_folder_that_is_closed_is_told(here: Path, capsys: Captured) -> None:
    site_file(here / "site.yaml")
    here.chmod(0o755)
    folder(here / "closed")
    (here / "closed").chmod(0)
    assert run(["site", "check", "./site.yaml"]) == 0
    capsys.readouterr()
    try:
        with as_nobody():
            assert run(["site", "check", "./site.yaml"]) == 0, "what is not closed can be read"
            capsys.readouterr()
            line = told(capsys, "site", "check", "closed/site.yaml", code=5)
    finally:
        (here / "closed").chmod(stat.S_IRWXU)
    assert "Permission denied; a file that can be read was wanted" in line


@pytest.mark.parametrize(
    "words",
    [
        ("plan", "closed.txt", "--site", "./site.yaml"),
        ("plan", "service.yaml", "--site", "./closed.txt"),
        ("site", "check", "./closed.txt"),
        ("site", "import", "closed.txt", "--dry-run"),
        ("sweep", "closed.txt", "--site", "./site.yaml", "--results", "results"),
        ("model", "show", "closed.txt"),
        ("latency", "show", "closed.txt"),
        ("latency", "splitwise", "closed.txt", "--model", "m", "--hardware", "h", "--tensor-parallel", "1"),
    ],
    ids=" ".join,
)
def test_a_file_that_may_not_be_read_is_told_with_what_to_do(here: Path, capsys: Captured, words: list[str]) -> None:
    site_file(here / "site.yaml")
    here.chmod(0o755)
    (here / "closed.txt").touch(mode=0)
    with as_nobody():
        line = told(capsys, *words, code=5)
    assert "closed.txt: Permission denied; " in line
    assert "check the path" in line


@pytest.mark.parametrize(
    "words",
    [
        ("plan", "service.yaml", "--site", "./site.yaml", "--latency", "~nobody-has-this-name/x.json"),
        ("plan", "homeless.yaml", "--site", "./site.yaml"),
        ("latency", "show", "~nobody-has-this-name/x.json"),
        ("status", "~nobody-has-this-name/job-1"),
        ("status", "--jobs-dir", "~nobody-has-this-name"),
        ("render", "service.yaml", "--site", "./site.yaml", "--jobs-dir", "~nobody-has-this-name"),
        ("sweep", "sweep.yaml", "--site", "./site.yaml", "--results", "~nobody-has-this-name"),
        ("site", "import", "sinfo.txt", "--into", "~nobody-has-this-name/s.yaml", "--yes"),
    ],
    ids=" ".join,
)
def test_a_home_that_is_not_known_is_told(here: Path, capsys: Captured, words: list[str]) -> None:
    write_site(here).rename(here / "site.yaml")
    write_model(here)
    service = write_service(here).rename(here / "service.yaml").read_text()
    (here / "homeless.yaml").write_text(service.replace("model: ", "model: ~nobody-has-this-name/"))
    (here / "sweep.yaml").write_text((ROOT / "docs/examples/sim-sweep.yaml").read_text())
    (here / "sim.yaml").write_text(service)
    (here / "sinfo.txt").write_text("PARTITION AVAIL TIMELIMIT NODES STATE NODELIST\nmain up 1:00:00 1 idle n1\n")
    before = sorted(here.rglob("*"))
    line = told(capsys, *words, code=3)
    assert "~nobody-has-this-name" in line
    assert line.endswith("the home directory of that user is not known; write the whole path, or set HOME")
    assert sorted(here.rglob("*")) == before


@pytest.mark.parametrize(
    ("text", "place", "found"),
    [
        ("\ufeff{}", "1:1", "a byte order mark; UTF-8 without one was wanted; save the file without it"),
        ('{\n "hidden_size": ' + 6000 * "9" + "}", "2:17", "a number of 6000 digits; the numbers of a config.json"),
        ('{"hidden_size": -' + 6000 * "9" + "}", "1:18", "a number of 6000 digits; the numbers of a config.json"),
        (100_000 * "[", "1:1", "brackets in brackets without end; a JSON object was wanted; fetch it again"),
        ("", "1:1", "not JSON: "),
        ("[]", "1:1", "no JSON object; "),
    ],
)
def test_model_show_of_a_config_that_no_reader_takes(
    here: Path, capsys: Captured, text: str, place: str, found: str
) -> None:
    (here / "config.json").write_text(text, encoding="utf-8")
    assert told(capsys, "model", "show", "config.json", code=2).startswith(f"config.json:{place}: {found}")


def test_a_config_that_is_not_utf8_is_told_with_its_place(here: Path, capsys: Captured) -> None:
    (here / "config.json").write_bytes(b'{"a": "\xe9"}')
    assert told(capsys, "model", "show", "config.json", code=2).startswith("config.json:1:8: the byte 0xe9; ")


@pytest.mark.parametrize("end", ['"x"', "[]", "null", "true", '{"a": 1}', "1e400"])
def test_a_weight_file_whose_header_lies_is_not_measured(here: Path, capsys: Captured, end: str) -> None:
    header = f'{{"w": {{"data_offsets": [0, {end}]}}}}'.encode()
    (here / "config.json").write_text(text_of("Llama-3.1-8B"))
    (here / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    assert run(["model", "show", "config.json"]) == 0
    assert "16,060,522,496 B" in capsys.readouterr().out
