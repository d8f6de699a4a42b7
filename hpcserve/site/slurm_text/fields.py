"""Single values of Slurm's texts: numbers, lists, GRES, states; what is not there is None, what is wrong a mistake."""

import re
from collections.abc import Mapping

from hpcserve.site.mistakes import Mistakes
from hpcserve.site.slurm_text.gres import Gres, parse_gres
from hpcserve.site.slurm_text.node_state import usable
from hpcserve.site.slurm_text.settings import Setting

__all__ = ["ABSENT", "gres_of", "limit_of", "number_of", "state_of", "text_of", "truth_of", "words_of"]

ABSENT = frozenset({"", "(null)", "N/A", "n/a", "none", "None"})
_NUMBER = re.compile(r"[0-9]{1,15}")
_NO_LIMIT = frozenset({"unlimited", "infinite"})


def text_of(values: Mapping[str, Setting], key: str) -> str | None:
    """The value of a key; None where there is none or Slurm says so."""
    setting = values.get(key)
    return None if setting is None or setting.value in ABSENT else setting.value


def words_of(values: Mapping[str, Setting], *keys: str) -> tuple[str, ...]:
    """The words of the first key that is there, between commas (Slurm takes `&` and blanks between features too)."""
    for key in keys:
        text = text_of(values, key)
        if text is not None:
            return tuple(word for word in re.split(r"[,&\s]+", text) if word)
    return ()


def number_of(values: Mapping[str, Setting], key: str, mistakes: Mistakes) -> int | None:
    """A whole number, without a suffix as Slurm wants it here; None where there is none or no limit."""
    setting = values.get(key)
    if setting is None or setting.value in ABSENT or setting.value.lower() in _NO_LIMIT:
        return None
    if _NUMBER.fullmatch(setting.value) is None:
        mistakes.add(
            setting.value_place,
            f"`{setting.key}={setting.value}`",
            "a whole number was wanted",
            f"correct `{setting.key}`",
        )
        return None
    return int(setting.value)


def limit_of(values: Mapping[str, Setting], key: str) -> str | None:
    """A limit of time as Slurm writes it, `UNLIMITED` where it says that there is none."""
    text = text_of(values, key)
    return "UNLIMITED" if text is not None and text.lower() in _NO_LIMIT else text


def truth_of(values: Mapping[str, Setting], key: str) -> bool | None:
    """YES or NO; None where the key is not there."""
    text = text_of(values, key)
    return None if text is None else text.lower() in {"yes", "y", "true", "up", "1"}


def gres_of(values: Mapping[str, Setting], key: str, mistakes: Mistakes) -> Gres | None:
    """The GPUs that a GRES or TRES text names; None where the key is not there."""
    setting = values.get(key)
    if setting is None:
        return None
    try:
        return parse_gres(setting.value)
    except ValueError as error:
        mistakes.add(setting.value_place, str(error), "a GRES was wanted", "write it as in gpu:h100:8")
        return None


def state_of(values: Mapping[str, Setting], key: str, mistakes: Mistakes) -> tuple[str | None, bool | None]:
    """A node's state as it is written, and whether jobs can start there."""
    setting = values.get(key)
    if setting is None or setting.value in ABSENT:
        return None, None
    try:
        return setting.value, usable(setting.value)
    except ValueError as error:
        mistakes.add(setting.value_place, str(error), "a node state was wanted", "write it as in IDLE+DRAIN")
        return None, None
