"""Runs -> what they say about prefill and decode of one kind of worker, each time with what it is made of."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from hpcserve.engines import option_count
from hpcserve.errors import HpcserveError
from hpcserve.latency.overlap import company, stays_of, undisturbed
from hpcserve.nouns import PlannedWorker, Role, Run
from hpcserve.site import hosts_of

__all__ = ["Observed", "Seen", "WorkerKind", "observe"]

_BATCHED_TOKENS = "--max-num-batched-tokens"
"""vLLM's limit of tokens in a step: longer prompts take several steps."""

_UNKNOWN_GPU = "GPU of a node that the site file does not list"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One request's prefill or decode step: the columns it is a sum of, and its milliseconds."""

    run: str
    row: tuple[float, float, float]
    """Prefill: steps, new tokens, new x (before + new / 2). Decode: 1, sequences, context tokens."""
    ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerKind:
    """What must be alike for times to be times of the same thing."""

    model: str
    engine: str
    gpu: str
    simulated: bool
    prefill_tensor_parallel: int
    decode_tensor_parallel: int
    prefill_stages: int
    decode_stages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Everything that the runs say. `runs` are those used; `notes` say what was taken off, and what was left out."""

    kind: WorkerKind
    runs: tuple[str, ...]
    prefill: tuple[Seen, ...]
    decode: tuple[Seen, ...]
    notes: tuple[str, ...]


def observe(runs: Iterable[Run], *, router_ms: float = 0.0) -> Observed:
    """What valid runs say; raises HpcserveError where there are none, or where they are of different workers.

    Prefill, from requests that were alone until their first token: TTFT, less the measured transfer of their KV, less
    the decode step that follows it (their own TPOT), less `router_ms`. An aggregated worker has neither transfer nor
    step. Decode: TPOT, beside the sequences and contexts that were decoded together on the only decode worker.
    """
    given = sorted(runs, key=lambda run: (run.sweep, run.id))
    usable = [run for run in given if run.validity.valid and run.samples and _has_both_phases(run)]
    if not usable:
        raise HpcserveError(
            f"none of {len(given)} runs is valid",
            remedy="`hpcserve report` says why; measure again with `hpcserve sweep`",
        )
    kind = _kind_of(usable)
    moved = _transfer_ms_per_token(usable)
    prefill: list[Seen] = []
    decode: list[Seen] = []
    used: list[str] = []
    left_out: list[str] = []
    for run in usable:
        transfer = moved.get((run.sweep, run.placement))
        if _is_split(run) and transfer is None:
            left_out.append(f"{run.id}: its transfers were not timed")
            continue
        used.append(run.id)
        prefill += _prefill_of(run, transfer_ms_per_token=transfer or 0.0, router_ms=router_ms)
        alone = run.load.kind == "alone"
        if not alone and len(_workers(run, Role.DECODE)) > 1:
            left_out.append(f"{run.id}: nobody wrote down which of several decode workers served a request")
            continue
        decode += _decode_of(run)
    return Observed(
        kind=kind,
        runs=tuple(used),
        prefill=tuple(prefill),
        decode=tuple(decode),
        notes=tuple(_notes(usable, router_ms=router_ms) + [f"not used: {one}" for one in left_out]),
    )


def _kind_of(runs: Sequence[Run]) -> WorkerKind:
    kinds: dict[WorkerKind, str] = {}
    for run in runs:
        prefill, decode = _workers(run, Role.PREFILL)[0], _workers(run, Role.DECODE)[0]
        hosts = hosts_of(run.site)
        gpus = {hosts[one.node].gpu.model if one.node in hosts else _UNKNOWN_GPU for one in (prefill, decode)}
        kind = WorkerKind(
            model=run.service.model,
            engine=run.environment.get("engines") or run.service.engine,
            gpu=" and ".join(sorted(gpus)),
            simulated=run.simulated,
            prefill_tensor_parallel=prefill.tensor_parallel,
            decode_tensor_parallel=decode.tensor_parallel,
            prefill_stages=prefill.stages,
            decode_stages=decode.stages,
        )
        kinds.setdefault(kind, run.id)
    if len(kinds) > 1:
        raise HpcserveError(
            "the runs are of different workers: "
            + "; ".join(f"{run} of {_words(kind)}" for kind, run in kinds.items()),
            remedy="fit those that are alike: name the placements with --placement, or folders of one kind",
        )
    return next(iter(kinds))


def _words(kind: WorkerKind) -> str:
    return (
        f"{kind.model} on {kind.gpu} with {kind.engine}{' (simulated)' * kind.simulated}, prefill TP "
        f"{kind.prefill_tensor_parallel}{_stages(kind.prefill_stages)}, decode TP {kind.decode_tensor_parallel}"
        f"{_stages(kind.decode_stages)}"
    )


def _stages(count: int) -> str:
    return f" PP {count}" if count > 1 else ""


def _workers(run: Run, role: Role) -> list[PlannedWorker]:
    """The workers that do this phase: of that role, or aggregated."""
    planned = () if run.plan is None else run.plan.workers
    return [worker for worker in planned if worker.role in (role, Role.AGGREGATED)]


def _has_both_phases(run: Run) -> bool:
    return bool(_workers(run, Role.PREFILL)) and bool(_workers(run, Role.DECODE))


def _is_split(run: Run) -> bool:
    return run.plan is not None and bool(run.plan.paths)


def _transfer_ms_per_token(runs: Sequence[Run]) -> Mapping[tuple[str, str], float]:
    """Milliseconds of transfer per prompt token by placement: transfers alone where they were timed, else the mean."""
    found: dict[tuple[str, str], float] = {}
    for run in sorted(runs, key=lambda one: one.load.kind):
        moved = run.transfers
        if moved is None or not moved.count:
            continue
        tokens = max(1.0, sum(sample.input_tokens for sample in run.samples) / len(run.samples))
        each_ms = median(moved.each_ms) if moved.each_ms else moved.seconds / moved.count * 1e3
        found.setdefault((run.sweep, run.placement), each_ms / tokens)
    return found


def _prefill_of(run: Run, *, transfer_ms_per_token: float, router_ms: float) -> list[Seen]:
    split = _is_split(run)
    cached = run.load.cached_prefix_tokens
    quiet = undisturbed(stays_of(run.samples))
    if run.load.kind == "rate" and quiet and quiet[0].came_s == min(sample.start_s for sample in run.samples):
        quiet = quiet[1:]  # the generator warms up with its first prompt, which is then cached whole
    budget = _step_tokens(run)
    each = run.transfers.each_ms if run.transfers is not None else ()
    by_sample = dict(zip(run.samples, each, strict=True)) if len(each) == len(run.samples) else {}
    found = []
    for stay in quiet:
        tokens = stay.sample.input_tokens
        new = tokens - min(cached, tokens - 1)
        taken_off = router_ms
        if split:
            taken_off += by_sample.get(stay.sample, transfer_ms_per_token * tokens) + stay.tpot_ms
        if stay.ttft_ms <= taken_off:
            continue
        steps = 1 if budget is None else -(-new // budget)
        row = (float(steps), float(new), new * (tokens - new + new / 2))
        found.append(Seen(run=run.id, row=row, ms=stay.ttft_ms - taken_off))
    return found


def _decode_of(run: Run) -> list[Seen]:
    together = company(stays_of(run.samples), interrupted=not _is_split(run))
    return [
        Seen(run=run.id, row=(1.0, beside.sequences, beside.context_tokens), ms=stay.tpot_ms)
        for stay, beside in together
        if stay.tpot_ms > 0
    ]


def _step_tokens(run: Run) -> int | None:
    """The limit of tokens in a prefill step, where the service sets it."""
    roles = {worker.role for worker in _workers(run, Role.PREFILL)}
    words = [*run.service.args, *(word for pool in run.service.pools if pool.role in roles for word in pool.args)]
    return option_count(words, _BATCHED_TOKENS)


def _notes(runs: Sequence[Run], *, router_ms: float) -> list[str]:
    notes = []
    if any(_is_split(run) for run in runs):
        notes.append(
            "prefill is TTFT less the measured transfer and one decode step (TPOT); what else a handoff takes is in it"
        )
    notes.append(
        f"{router_ms:g} ms of each TTFT was taken off for router and HTTP"
        if router_ms
        else "the time of router and HTTP is in the base of prefill: runs do not tell them apart"
    )
    if any(run.load.cached_prefix_tokens for run in runs):
        notes.append("a cached prefix counts as cached to the token; engines cache whole blocks")
    if any(run.simulated for run in runs):
        notes.append("simulated: fitted to a simulated engine, not to hardware")
    return notes
