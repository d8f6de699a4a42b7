"""The program `hpcserve`: its verbs, and how its errors reach a person."""

import io
import os
import sys
import traceback

import click

from hpcserve import __version__
from hpcserve.cli.cancel import cancel
from hpcserve.cli.completion import completion
from hpcserve.cli.doctor import doctor
from hpcserve.cli.engine import engine
from hpcserve.cli.latency_import import latency
from hpcserve.cli.logs import logs
from hpcserve.cli.model_show import model
from hpcserve.cli.options import examples
from hpcserve.cli.plan import plan
from hpcserve.cli.render import render
from hpcserve.cli.report import report
from hpcserve.cli.site import site
from hpcserve.cli.site_measure import site_measure
from hpcserve.cli.site_schema import site_schema
from hpcserve.cli.status import status
from hpcserve.cli.submit import submit
from hpcserve.cli.sweep import sweep
from hpcserve.cli.url import url
from hpcserve.cli.wait import wait
from hpcserve.errors import HpcserveError, InputError, refused

__all__ = ["main", "program", "run"]

_INTERRUPTED = 130  # 128 + SIGINT, as shells say it
_BUG = 70  # EX_SOFTWARE, sysexits.h


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=examples(
        "hpcserve plan chat.yaml --site onebox",
        "hpcserve submit chat.yaml --site onebox --wait",
        'eval "$(hpcserve url chat --env)"',
    )
    + "\n\n\b\nExit codes: 0 done and verified, 1 something else failed, 2 mistakes in a file or option, 3 not found,"
    "\n4 cannot be placed, 5 a program, package or permission is missing, 6 the scheduler refused,"
    "\n7 the service failed, 8 time-out, 9 not verified, 10 and 11 the doctor found something, 70 a bug in hpcserve,"
    "\n130 Ctrl-C.",
)
@click.version_option(__version__, prog_name="hpcserve")
def program() -> None:
    """Serve LLMs with prefill and decode placed by the fabric of a Slurm cluster."""


for verb in (
    plan,
    render,
    submit,
    status,
    logs,
    url,
    cancel,
    wait,
    sweep,
    report,
    site,
    doctor,
    model,
    latency,
    engine,
    completion,
):
    program.add_command(verb)
site.add_command(site_schema)
site.add_command(site_measure)


def main() -> None:
    """Run `hpcserve` with the arguments of this process and end it with the exit code.

    What the terminal's encoding has no sign for, or a path that is no text, is shown as `?` and ends nothing.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line; the exit code. No error reaches a person as a traceback, unless HPCSERVE_DEBUG is set."""
    try:
        code = program.main(arguments, prog_name="hpcserve", standalone_mode=False)
    except HpcserveError as error:
        _debug()
        prefix = "" if isinstance(error, InputError) else "error: "
        click.echo(f"{prefix}{error}", err=True)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return _INTERRUPTED
    except OSError as error:
        _debug()
        what = str(error.filename or "what was printed")
        told = refused(error, what, remedy="check the path, its permissions and the room there")
        click.echo(f"error: {told}", err=True)
        return told.exit_code
    except Exception as error:  # noqa: BLE001 - the last resort of the program: a bug is told, not shown as a traceback
        _debug()
        click.echo(
            f"error: hpcserve has a bug: {type(error).__name__}: {error}; HPCSERVE_DEBUG=1 shows where", err=True
        )
        return _BUG
    return code if isinstance(code, int) else 0


def _debug() -> None:
    if os.environ.get("HPCSERVE_DEBUG"):
        traceback.print_exc()
