"""What kind of text a file holds, from what stands in it."""

import re
from typing import Any

from hpcserve.errors import InputError, Mistake
from hpcserve.site.gpu_text import KINDS as GPU_KINDS
from hpcserve.site.host_text import KINDS as HOST_KINDS
from hpcserve.site.infiniband_text import KINDS as INFINIBAND_KINDS
from hpcserve.site.kind import Kind
from hpcserve.site.reading import nearest
from hpcserve.site.slurm_text import KINDS as SLURM_KINDS

__all__ = ["KINDS", "kind_named", "recognise"]

KINDS: tuple[Kind[Any], ...] = (*SLURM_KINDS, *INFINIBAND_KINDS, *GPU_KINDS, *HOST_KINDS)
"""Every kind, in the order in which a text is tried."""

_NO_BINARY = "\0"
_FAILURES = re.compile(
    r"command not found|permission denied|no such file or directory|unrecognized option|invalid option"
    r"|unable to contact slurm controller|connection refused|^\s{0,99}(?:[\w./-]{1,60}:\s{0,9}){0,3}(?:error|fatal)\b"
    r"|^slurm_load_\w{1,40}|^usage:",
    re.IGNORECASE | re.MULTILINE,
)
"""What shells and Slurm's tools print instead of an answer."""
_FAILURE_LENGTH = 4096


def kind_named(name: str) -> Kind[Any]:
    """The kind with this name; raises InputError that lists all."""
    for kind in KINDS:
        if kind.name == name:
            return kind
    raise _refusal("--kind", f"`{name}`", "the name of a kind was wanted", nearest(name, _names(), none=""))


def recognise(text: str, name: str) -> Kind[Any]:
    """The kind of a text; raises InputError for one of no kind, an empty one, or a tool's complaint.

    `name` is the file's: it decides only where the text itself does not, such as for a topology.conf of comments.
    """
    for kind in KINDS:
        if kind.looks_like(text):
            return kind
    base = name.rsplit("/", 1)[-1]
    for kind in KINDS:
        if base == kind.name:
            return kind
    if not text.strip():
        raise _refusal(name, "nothing", "what a tool printed was wanted", "collect it again, or leave the file out")
    complaint = _FAILURES.search(text[:_FAILURE_LENGTH]) if len(text) < _FAILURE_LENGTH else None
    if complaint:
        line = text.count("\n", 0, complaint.start()) + 1
        raise _refusal(
            name,
            f"the complaint of a tool, `{text.split(chr(10))[line - 1].strip()[:160]}`",
            "what it prints when it works was wanted",
            "cure what it names and collect the text again, or leave the file out",
            line=line,
        )
    found = "binary data" if _NO_BINARY in text else f"a text of no known kind, `{text.strip()[:60]}`"
    raise _refusal(
        name, found, f"one of these was wanted: {', '.join(_names())}", "say which it is with --kind, or leave it out"
    )


def _names() -> list[str]:
    return [kind.name for kind in KINDS if not kind.name.endswith("-failure")]


def _refusal(name: str, found: str, wanted: str, remedy: str, *, line: int = 1) -> InputError:
    return InputError([Mistake(file=name, line=line, column=1, found=found, wanted=wanted, remedy=remedy)])
