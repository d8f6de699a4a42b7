"""Where site files and templates are found, and how text files are read."""

import difflib
import os
from collections.abc import Iterable
from pathlib import Path

from hpcserve.deploy.on_disk import FILE, FOLDER, cannot_be_read, what_is_there
from hpcserve.discovery import home_directory, typed_path
from hpcserve.errors import InputError, Mistake, NotFoundError
from hpcserve.nouns import Site
from hpcserve.render import TEMPLATE_NAMES

__all__ = ["find_site", "jobs_folder", "list_sites", "read_templates", "read_text"]

_PACKAGE = Path(__file__).resolve().parent.parent
_SYSTEM = Path("/etc/hpcserve")
_MOST_BYTES = 2**20
"""A site of thousands of nodes is a few kB, as host lists say them; parsing what is larger would take minutes."""

_SUFFIX = ".yaml"
_WANTED = "the name of a site or its file was wanted"


def find_site(wanted: str) -> Path:
    """The file of a site: a path, or a name that is looked for in the user's folder, /etc/hpcserve, what is shipped.

    Raises NotFoundError where there is no such site, or something else than a file.
    """
    if not wanted:
        raise NotFoundError(f"nothing is named; {_WANTED}", remedy="`hpcserve site list` shows the names")
    is_path = "/" in wanted or wanted.endswith((_SUFFIX, ".yml"))
    sites = {} if is_path else list_sites()
    if wanted in sites:
        return sites[wanted]
    path = typed_path(wanted)
    there = what_is_there(path)
    if there == FILE and is_path:
        return path
    if there == FILE:
        raise NotFoundError(f"{wanted}: no site's name, but a file; {_WANTED}", remedy=f"write ./{wanted} for the file")
    if there:
        remedy = (
            f"name a file in it: {path / 'NAME'}{_SUFFIX}" if there == FOLDER else "save what it holds to a file first"
        )
        raise NotFoundError(f"{wanted}: {there}; {_WANTED}", remedy=remedy)
    if is_path:
        raise NotFoundError(
            f"no site file {wanted}",
            remedy="check the path; `hpcserve site list` shows the sites that have a name",
        )
    near = difflib.get_close_matches(wanted, sites, n=1)
    raise NotFoundError(
        f"no site `{wanted}`",
        remedy=f"did you mean `{near[0]}`?" if near else f"known sites: {', '.join(sites) or 'none'}",
    )


def list_sites() -> dict[str, Path]:
    """Every site that can be named, by name; where two folders have the same name, the user's own comes first."""
    found: dict[str, Path] = {}
    for folder in (_user_folder() / "sites", _SYSTEM / "sites", _shipped("site_configs")):
        if folder.is_dir():
            for path in sorted(folder.glob(f"*{_SUFFIX}")):
                if path.is_file():
                    found.setdefault(path.stem, path)
    return dict(sorted(found.items()))


def read_templates(names: Iterable[str] = TEMPLATE_NAMES) -> dict[str, str]:
    """The text of each job template: the user's, else the site's in /etc/hpcserve, else the shipped one."""
    folders = (_user_folder() / "job_templates", _SYSTEM / "job_templates", _shipped("job_templates"))
    templates: dict[str, str] = {}
    for name in names:
        path = next((folder / name for folder in folders if (folder / name).is_file()), None)
        if path is None:
            raise NotFoundError(
                f"no job template {name} in {', '.join(map(str, folders))}", remedy="install hpcserve anew"
            )
        templates[name] = read_text(path)
    return templates


def read_text(path: Path) -> str:
    """A text file whole.

    Raises NotFoundError where there is no regular file, InputError for one that is too large for what people write, and
    with the place of what is not UTF-8; MissingToolError for one that may not be read.
    """
    there = what_is_there(path)
    if not there:
        raise NotFoundError(f"no file {path}", remedy="check the path")
    if there != FILE:
        remedy = "name a file in it" if there == FOLDER else "save what it holds to a file first"
        raise NotFoundError(f"{path}: {there}; a regular file was wanted", remedy=remedy)
    try:
        size = path.stat().st_size
        if size > _MOST_BYTES:
            raise InputError(
                [
                    Mistake(
                        file=str(path),
                        line=1,
                        column=1,
                        found=f"{size} bytes",
                        wanted=f"at most {_MOST_BYTES} bytes were wanted",
                        remedy="check that this is the right file",
                    )
                ]
            )
        data = path.read_bytes()
    except FileNotFoundError:
        raise NotFoundError(f"no file {path}", remedy="check the path") from None
    except OSError as error:
        raise cannot_be_read(path, error) from None
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start]
        mistake = Mistake(
            file=str(path),
            line=before.count(b"\n") + 1,
            column=error.start - (before.rfind(b"\n") + 1) + 1,
            found=f"the byte 0x{data[error.start]:02x}",
            wanted="text in UTF-8 was wanted",
            remedy="save the file as UTF-8",
        )
        raise InputError([mistake]) from None


def jobs_folder(site: Site, asked: Path | None) -> Path:
    """Where the site's job directories are made: what was asked for, else the site's `paths.jobs`; absolute."""
    return typed_path(asked or site.paths.jobs).absolute()


def _user_folder() -> Path:
    """XDG Base Directory Specification 0.8: $XDG_CONFIG_HOME, else ~/.config."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or home_directory() / ".config") / "hpcserve"


def _shipped(name: str) -> Path:
    """What comes with hpcserve: inside the wheel, or beside the package in a checkout."""
    packed = _PACKAGE / "_shipped" / name
    return packed if packed.is_dir() else _PACKAGE.parent / name
