"""`hpcserve url`: the address of a service, and its key for clients."""

import json
import shlex
from pathlib import Path

import click

from hpcserve.cli.options import examples, job_argument, job_roots, jobs_dir_of_old_jobs_option, json_option
from hpcserve.deploy import read_text
from hpcserve.errors import ServiceError
from hpcserve.scheduler import find_job, job_state, launcher_for, router_answers

__all__ = ["url"]


@click.command(
    epilog=examples(
        'curl -H "Authorization: Bearer $(cat DIR/keys/api.key)" $(hpcserve url chat)/v1/models',
        'eval "$(hpcserve url chat --env)"   # the openai client then needs no arguments',
    )
)
@job_argument
@click.option("--env", "as_env", is_flag=True, help="Print OPENAI_BASE_URL and OPENAI_API_KEY for a shell to read.")
@jobs_dir_of_old_jobs_option
@json_option
def url(job: str, as_env: bool, jobs_dir: Path | None, as_json: bool) -> None:
    """Print the address of JOB's router. Clients send the key in keys/api.key of its directory as a bearer token."""
    found = find_job(job, job_roots(jobs_dir))
    handle = found.submitted()
    state = job_state(found.directory, handle, launcher=launcher_for(handle.launcher), answers=router_answers)
    if state.url is None:
        raise ServiceError(
            f"{handle.name} has no address: it is {state.phase.value}" + (f", {state.reason}" if state.reason else ""),
            remedy=f"`hpcserve wait {handle.name}` returns when it has one",
        )
    base, key_file = f"{state.url}/v1", found.directory / "keys" / "api.key"
    if as_json:
        click.echo(json.dumps({"url": state.url, "openai_base_url": base, "api_key_file": str(key_file)}))
    elif as_env:
        key = read_text(key_file).strip()
        click.echo(f"export OPENAI_BASE_URL={shlex.quote(base)} OPENAI_API_KEY={shlex.quote(key)}")
    else:
        click.echo(state.url)
