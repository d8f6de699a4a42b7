"""Latency models by file or published name, with the parallelism that each is of."""

import difflib
from collections.abc import Sequence

from hpcserve.deploy.on_disk import what_is_there
from hpcserve.deploy.places import read_text
from hpcserve.discovery import typed_path
from hpcserve.errors import NotFoundError
from hpcserve.latency import NAMES, model_of, named, parallelism_of, read_latency, subject_of
from hpcserve.placement import Speed

__all__ = ["read_speeds"]


def read_speeds(given: Sequence[str]) -> tuple[Speed, ...]:
    """The latency models named, in order.

    Raises NotFoundError for what is neither file nor name, InputError for a bad file.
    """
    return tuple(_speed(name) for name in given)


def _speed(name: str) -> Speed:
    path = typed_path(name)
    if what_is_there(path):
        file = read_latency(read_text(path), source=str(path))
        return Speed(
            model=model_of(file),
            prefill_ranks=file.prefill.tensor_parallel,
            decode_ranks=file.decode.tensor_parallel,
            prefill_stages=file.prefill.pipeline_parallel,
            decode_stages=file.decode.pipeline_parallel,
            gpu=file.gpu,
            model_name=file.model,
        )
    if name in NAMES:
        ranks, stages = parallelism_of(name)
        model, gpu = subject_of(name)
        return Speed(
            model=named(name),
            prefill_ranks=ranks,
            decode_ranks=ranks,
            prefill_stages=stages,
            decode_stages=stages,
            gpu=gpu,
            model_name=model,
        )
    near = difflib.get_close_matches(name, NAMES, n=1)
    raise NotFoundError(
        f"--latency {name}: no file and no published profile",
        remedy=f"did you mean {near[0]}?"
        if near
        else "`hpcserve latency list` has the names, `latency fit` makes files",
    )
