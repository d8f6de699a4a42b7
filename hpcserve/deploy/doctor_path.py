"""From a site to what the doctor is to look at."""

import os
import secrets
import socket
from pathlib import Path

from hpcserve.deploy.places import find_site, jobs_folder, read_templates, read_text
from hpcserve.deploy.submit_path import own_python_folder
from hpcserve.doctor import Order
from hpcserve.provision import tested_versions
from hpcserve.render import runtime_files
from hpcserve.scheduler import clean_environment
from hpcserve.site import load_site

__all__ = ["order_doctor"]


def order_doctor(
    site: str, *, nodes: tuple[str, ...], account: str | None, jobs_dir: Path | None, wait_s: float
) -> Order:
    """What is looked at for a site's name or file; changes nothing.

    Raises InputError, NotFoundError, or MissingToolError where no Python can be named that the nodes would run.
    """
    path = find_site(site)
    text = read_text(path)
    described = load_site(text, source=str(path))
    name = f".doctor-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
    directory = jobs_folder(described, jobs_dir) / name
    return Order(
        site=described,
        site_text=text,
        nodes=nodes,
        account=account,
        directory=directory,
        runtimes=runtime_files(
            site=described,
            service=None,
            templates=read_templates(),
            directory=str(directory),
            python_folder=own_python_folder(described),
        ),
        tested=tested_versions(),
        wait_s=wait_s,
        environment=clean_environment(os.environ),
    )
