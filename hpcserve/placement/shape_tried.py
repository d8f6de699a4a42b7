"""The shapes that were tried: which is chosen, the verdict, and a row for each."""

from collections.abc import Collection, Iterable

from hpcserve.errors import PlacementError
from hpcserve.nouns import Alternative, Mode, Verdict
from hpcserve.placement.demand import has_both_phases
from hpcserve.placement.gap import start_words, words_of
from hpcserve.placement.shape import UNSIMULATED, Shape
from hpcserve.placement.shape_trial import NOTICED, Bench, Trial
from hpcserve.placement.verdict import cannot_be_separate, of_the_alternative, without_phases
from hpcserve.placement.verdict_simulated import judge_alone, judge_simulated

__all__ = ["Tried"]

Key = tuple[object, ...]


class Tried:
    """Shapes in their order, each simulated or with the reason why it could not be placed."""

    def __init__(self, bench: Bench, shapes: Iterable[Shape]) -> None:
        self._bench = bench
        self._trials: dict[Key, Trial] = {}
        self._refused: dict[Key, tuple[Shape, PlacementError]] = {}
        for shape in shapes:
            if shape.key not in self._trials and shape.key not in self._refused:
                try:
                    self._trials[shape.key] = bench.run(shape)
                except PlacementError as error:
                    self._refused[shape.key] = shape, error

    def choose(self, eligible: Collection[Key], *, gpus: int) -> tuple[Trial, Verdict]:
        """The trial that is taken, of those that may be, and the verdict; `gpus`: how many there are.

        Mode `auto` follows the verdict, the others are obeyed. Raises PlacementError where none can be placed.
        """
        mode = self._bench.service.mode
        separate, whole = self._best("disaggregated", eligible), self._best("aggregated", eligible)
        if separate is not None and whole is not None:
            verdict = judge_simulated(self._bench, separate, whole)
            apart = verdict.disaggregate if mode == Mode.AUTO else mode == Mode.DISAGGREGATED
            chosen = separate if apart else whole
            return chosen, self._said(verdict if apart else of_the_alternative(verdict), chosen)
        if separate is not None and mode != Mode.AGGREGATED:
            verdict = judge_alone(self._bench, separate, self._why_not("aggregated", eligible))
            return separate, self._said(verdict, separate)
        if whole is None or mode == Mode.DISAGGREGATED:
            raise self._why_not("aggregated" if mode == Mode.AGGREGATED else "disaggregated", eligible)
        if not self._bench.gpus and not has_both_phases(self._bench.service):
            return whole, self._said(without_phases(), whole)
        why_not = self._why_not("disaggregated", eligible)
        return whole, self._said(cannot_be_separate(why_not, gpus=gpus), whole)

    def rows(self, own: Collection[Key], chosen: Trial) -> tuple[Alternative, ...]:
        """A row for each shape: the simulated ones by goodput per GPU, best first, then the refused ones."""
        ranked = sorted(self._trials.values(), key=lambda trial: (-trial.per_gpu, trial.shape.gpus))
        return (
            *(_row(trial, as_written=trial.shape.key in own, chosen=trial is chosen) for trial in ranked),
            *(
                Alternative(
                    name=shape.name,
                    mode=shape.mode,
                    pools=shape.pools,
                    gpus=shape.gpus,
                    as_written=shape.key in own,
                    chosen=False,
                    remarks=(error.message if error.message == UNSIMULATED else f"cannot be placed: {error.message}",),
                )
                for shape, error in self._refused.values()
            ),
        )

    def _best(self, mode: str, eligible: Collection[Key]) -> Trial | None:
        """Most goodput per GPU, those that carry the load first where it is known; then formulas and fewer GPUs."""
        wanted = self._bench.service.slo.attainment

        def rank(trial: Trial) -> tuple[bool, float, float, int]:
            carries = trial.at_load is None or trial.at_load.attainment >= wanted
            return carries, trial.per_gpu, trial.quick / trial.gpus, -trial.shape.gpus

        fitting = [trial for key, trial in self._trials.items() if key in eligible and trial.shape.mode == mode]
        return max(fitting, key=rank, default=None)

    def _why_not(self, mode: str, eligible: Collection[Key]) -> PlacementError:
        """Why no shape of that mode can be taken: the first refusal, else that there was none to try."""
        for key, (shape, error) in self._refused.items():
            if key in eligible and shape.mode == mode:
                return error
        bench = self._bench
        if not bench.gpus:
            return PlacementError(f"service {bench.service.name} has no pools for mode {mode}", remedy="add them")
        workers = "prefill and decode workers" if mode == "disaggregated" else "aggregated workers"
        return PlacementError(
            f"of {bench.gpus} GPUs no {workers} can be made whose times a latency model tells",
            remedy="ask for more GPUs, or give a --latency for a smaller tensor_parallel of both phases",
        )

    def _said(self, verdict: Verdict, chosen: Trial) -> Verdict:
        """With a shape that gives noticeably more, where one was compared, and what is known of the assignment."""
        more: list[str] = []
        best = max(self._trials.values(), key=lambda trial: trial.per_gpu)
        if best.per_gpu > chosen.per_gpu * (1 + NOTICED):
            gives = f"{best.per_gpu:.3g} good requests/s per GPU against {chosen.per_gpu:.3g} of {chosen.shape.name}"
            more.append(f"another shape gives more: {best.shape.name}, {gives} (simulated)")
        if chosen.plan.assignment is not None:
            more += words_of(chosen.plan.assignment)
        more += start_words(self._bench.service, chosen.plan)
        return verdict.model_copy(update={"reasons": (*verdict.reasons, *more)})


def _row(trial: Trial, *, as_written: bool, chosen: bool) -> Alternative:
    shape, best = trial.shape, trial.best
    paths = trial.plan.paths
    return Alternative(
        name=shape.name,
        mode=shape.mode,
        pools=shape.pools,
        gpus=shape.gpus,
        as_written=as_written,
        chosen=chosen,
        quick_requests_per_s=trial.quick,
        goodput=trial.goodput,
        goodput_per_gpu=trial.per_gpu,
        at_requests_per_s=best.offered_rate,
        attainment=best.attainment,
        attainment_at_load=None if trial.at_load is None else trial.at_load.attainment,
        ttft_ms=best.ttft_ms,
        tpot_ms=best.tpot_ms,
        transfer_ms=best.transfer_ms if paths else None,
        slowest_transfer_ms=max((path.transfer_ms for path in paths), default=None),
        links=_links(trial),
        remarks=trial.remarks,
    )


def _links(trial: Trial) -> tuple[str, ...]:
    kinds = dict.fromkeys(
        f"{path.distance} by {path.hops[1]}" if path.distance == "same-node" else path.distance
        for path in trial.plan.paths
    )
    busiest = max(trial.best.links, key=lambda link: link.utilisation, default=None)
    used = () if busiest is None else (f"{busiest.name} {busiest.utilisation:.1%}",)
    return (*kinds, *used)
