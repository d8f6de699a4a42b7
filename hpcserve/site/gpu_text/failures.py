"""What nvidia-smi prints instead of an answer, and what to do about it."""

from collections.abc import Sequence

from hpcserve.site.mistakes import Mistakes
from hpcserve.site.tool_text import Line, lines_of

__all__ = ["find_failure", "looks_like_failure", "parse_failure"]

# Parts of what nvidia-smi and shells print, and what to do.
_SAYINGS = (
    (
        "couldn't communicate with the NVIDIA driver",
        "load that node's NVIDIA driver, or collect it on another node",
    ),
    ("Driver/library version mismatch", "reboot the node or reload its driver: library and kernel module differ"),
    ("No devices were found", "collect the text on a node with GPUs, inside a job that was given all of them"),
    ("Failed to initialize NVML", "collect the text on a node with GPUs and a working driver"),
    (
        "Unable to determine the device handle",
        "a GPU has fallen off the bus: see that node's kernel log, drain it",
    ),
    ("Insufficient Permissions", "collect it with more rights"),
    (
        "is not a valid field to query",
        "this driver knows no such field: leave it out, or give `nvidia-smi -q`",
    ),
    ("nvidia-smi: command not found", "collect the text on a node with GPUs"),
    ("nvidia-smi: not found", "collect the text on a node with GPUs"),
)
_LONGEST = 65536
"""Characters of a text that may be a failure; an answer is longer or none of these."""


def looks_like_failure(text: str) -> bool:
    """Whether a text is such a saying."""
    return len(text) <= _LONGEST and any(saying in text for saying, _ in _SAYINGS)


def find_failure(lines: Sequence[Line], mistakes: Mistakes, *, wanted: str) -> bool:
    """Whether the lines hold such a saying; adds the mistake, with what to do about it."""
    for line in lines:
        for saying, remedy in _SAYINGS:
            if saying in line.text:
                mistakes.add(line.at(), f"the tool failed: {line.text.strip()[:200]}", wanted, remedy)
                return True
    return False


def parse_failure(text: str, source: str) -> None:
    """Raise InputError that says why the tool gave no answer, and what to do."""
    mistakes = Mistakes(source)
    lines = lines_of(text, mistakes)
    if not find_failure(lines, mistakes, wanted="what nvidia-smi prints"):
        mistakes.add(None, "no complaint of nvidia-smi", "such a complaint", "give another --kind")
    mistakes.check()
