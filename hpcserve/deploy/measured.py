"""A measurement file beside a site: read, and held against the site it is laid over."""

from pathlib import Path

from hpcserve.deploy.places import read_text
from hpcserve.errors import InputError, Mistake
from hpcserve.nouns import Measurement, Site
from hpcserve.wire import UnreadableRecordError, decode_record

__all__ = ["read_measurement"]


def read_measurement(path: Path, site: Site) -> tuple[Measurement, str]:
    """The measurement in a file, and its text; InputError for one that cannot be read or is of another site.

    Raises NotFoundError where there is no such file.
    """
    text = read_text(path)
    try:
        found = decode_record(Measurement, text.encode())
    except UnreadableRecordError as error:
        raise _mistake(path, str(error), "what `hpcserve site measure` writes was wanted") from None
    if found.site != site.name:
        raise _mistake(path, f"a measurement of site `{found.site}`", f"one of site `{site.name}` was wanted")
    return found, text


def _mistake(path: Path, found: str, wanted: str) -> InputError:
    return InputError(
        [
            Mistake(
                file=str(path), line=1, column=1, found=found, wanted=wanted, remedy="name the file of this site's run"
            )
        ]
    )
