"""Jinja2 with the project's rules: values are shell-quoted, names must be defined, errors have their line."""

from collections.abc import Mapping
from types import TracebackType

import jinja2

from hpcserve.errors import InputError, Mistake
from hpcserve.render.shell import (
    ShellText,
    UnquotableError,
    as_comment,
    home_path,
    in_comment,
    quoted,
    words,
    wrapped_command,
)

__all__ = ["render_template"]

Value = object


def render_template(name: str, *, templates: Mapping[str, str], values: Mapping[str, Value]) -> str:
    """The text of the template `name`; raises InputError with the template's name and line."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda wanted: _source(wanted, templates)),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # noqa: S701 - shell text, not HTML: `finalize` quotes every value
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        {
            "raw": _raw,
            "words": words,
            "path": home_path,
            "command": wrapped_command,
            "comment": as_comment,
            "inline": in_comment,
        }
    )
    try:
        return environment.get_template(name).render(values)
    except jinja2.TemplateNotFound as error:
        raise InputError([_mistake(name, 1, f"there is no template `{error.name}`")]) from None
    except jinja2.TemplateSyntaxError as error:
        raise InputError([_mistake(error.name or name, error.lineno, error.message or "not a template")]) from None
    except (jinja2.TemplateError, UnquotableError, TypeError, ValueError) as error:
        place, line = _template_line(error.__traceback__, templates, fallback=name)
        raise InputError([_mistake(place, line, str(error))]) from None


def _source(name: str, templates: Mapping[str, str]) -> tuple[str, str, None] | None:
    """What Jinja2 wants to know of a template: its text, and its name where a file name is expected."""
    if name not in templates:
        return None
    return templates[name].replace("\r\n", "\n"), name, None


def _finalize(value: Value) -> str:
    """What `{{ value }}` becomes: text shell-quoted, whole numbers as they are, anything else refused."""
    if isinstance(value, ShellText):
        return value
    if isinstance(value, jinja2.Undefined):
        return str(value)
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise TypeError(f"a {type(value).__name__} cannot stand in a script: use a loop, `| words` or `| command`")


def _raw(value: Value) -> ShellText:
    """Says in a template that a value is shell text already; only text that was built in code is."""
    if not isinstance(value, ShellText):
        raise TypeError("`| raw` is for text that hpcserve built: without it, the value is quoted")
    return value


def _template_line(trace: TracebackType | None, templates: Mapping[str, str], *, fallback: str) -> tuple[str, int]:
    """The innermost template and line of a traceback (Jinja2 rewrites it to the templates' own lines)."""
    place, line = fallback, 1
    while trace is not None:
        if trace.tb_frame.f_code.co_filename in templates:
            place, line = trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next
    return place, line


def _mistake(template: str, line: int, found: str) -> Mistake:
    return Mistake(
        file=template,
        line=line,
        column=1,
        found=found,
        wanted="a template that renders was wanted",
        remedy="correct the template or the value that it was given",
    )
