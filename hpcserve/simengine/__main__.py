"""`python -m hpcserve.simengine serve MODEL ...` and `python -m hpcserve.simengine facts`."""

import os
import sys

import uvloop

from hpcserve.errors import HpcserveError
from hpcserve.nouns import EngineFacts
from hpcserve.simengine import read_settings, run, version


def main(argv: list[str]) -> int:
    """Run one of the two; returns the exit code."""
    match argv:
        case ["facts"]:
            facts = EngineFacts(
                name="sim",
                version=version(),
                platform="simulated",
                kv_connectors=("NixlConnector",),
                nixl_version=None,
                kv_options=("kv_load_failure_policy", "kv_lease_duration"),
            )
            sys.stdout.write(facts.model_dump_json() + "\n")
            return 0
        case ["serve", *words]:
            return _serve(words)
    sys.stderr.write("usage: python -m hpcserve.simengine serve MODEL [vllm serve's arguments] | facts\n")
    return 2


def _serve(words: list[str]) -> int:
    try:
        settings = read_settings(words, os.environ)
    except HpcserveError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    try:
        return uvloop.run(run(settings))
    except HpcserveError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
