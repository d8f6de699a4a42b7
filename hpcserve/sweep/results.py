"""The results folder of a sweep: what was ordered, and the runs that were measured."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import Field

from hpcserve.bench import BusyLimits
from hpcserve.discovery import read_dir_record, read_records, write_record
from hpcserve.errors import HpcserveError, refused
from hpcserve.nouns import JobHandle, ModelShape, Noun, Plan, Run, Service, Site, Sweep, SweepPlacement
from hpcserve.wire import UnreadableRecordError

__all__ = ["Order", "PlacementOrder", "Results"]

N = TypeVar("N", bound=Noun)


class PlacementOrder(Noun):
    """One placement and where it is to sit; `plan` is None where the site cannot realise it, and `reason` says why."""

    placement: SweepPlacement
    plan: Plan | None
    reason: str


class Order(Noun):
    """`order.json`: everything the measuring job needs, as plain data: no code travels from one Python to another."""

    schema_: Annotated[Literal["hpcserve.sweep-order/1"], Field(alias="schema")] = "hpcserve.sweep-order/1"
    sweep: Sweep
    service: Service
    site: Site
    shape: ModelShape
    launcher: Literal["slurm", "local"]
    """How the services are started inside the job."""
    placements: tuple[PlacementOrder, ...]
    retry_invalid: bool
    """Measure again what was measured and is invalid."""
    limits: BusyLimits
    """When the machine is too busy to measure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """A results folder: `order.json`, `job.json`, `runs/ID.json`, `jobs/` (one directory a service), `submitit/`."""

    folder: Path

    @property
    def jobs(self) -> Path:
        """Where the services' job directories are made."""
        return self.folder / "jobs"

    @property
    def submitit(self) -> Path:
        """Where submitit keeps its files and the job's logs."""
        return self.folder / "submitit"

    @property
    def job_file(self) -> Path:
        """The job that was submitted last."""
        return self.folder / "job.json"

    def make(self) -> None:
        """Make the folders; raises HpcserveError where the file system refuses."""
        try:
            for folder in (self.folder, self.folder / "runs", self.jobs, self.submitit):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise refused(
                error, f"{error.filename or self.folder} cannot be made", remedy="choose another --results"
            ) from None

    def forget_endings(self) -> None:
        """Remove what ended jobs left for submitit.

        A cluster that is made anew counts its jobs from 1 again: the next of the same id would have ended at once.
        """
        for result in self.submitit.glob("*_result.pkl"):
            result.unlink(missing_ok=True)

    def write_order(self, order: Order) -> None:
        """Put down what the job shall do."""
        write_record(self.folder / "order.json", order)

    def read_order(self) -> Order:
        """What the job shall do; raises HpcserveError where nothing was ordered."""
        order = self._record("order.json", Order)
        if order is None:
            raise HpcserveError(f"{self.folder} holds no order.json", remedy="start it with `hpcserve sweep`")
        return order

    def write_job(self, handle: JobHandle) -> None:
        """Keep which job measures, for whoever starts the sweep again."""
        write_record(self.job_file, handle)

    def read_job(self) -> JobHandle | None:
        """The job that was submitted last, None where there was none; raises HpcserveError for what is no record."""
        return self._record(self.job_file.name, JobHandle)

    def _record(self, name: str, kind: type[N]) -> N | None:
        try:
            return read_dir_record(self.folder, name, kind)
        except UnreadableRecordError as error:
            raise HpcserveError(
                f"{self.folder / name}: {error}",
                remedy="choose another --results, or remove that file once no job of this sweep runs any more",
            ) from None

    def write_run(self, run: Run) -> None:
        """Keep a run the moment it ends, whole or not at all."""
        write_record(self.folder / "runs" / f"{run.id}.json", run)

    def runs(self) -> Mapping[str, Run]:
        """Every run that can be read, by id; a torn or foreign file counts as not measured."""
        if not self.folder.is_dir():
            return {}
        return read_records(self.folder, "runs", Run).records

    def unreadable(self) -> Mapping[str, str]:
        """Files among the runs that cannot be read, and why."""
        return read_records(self.folder, "runs", Run).unreadable if self.folder.is_dir() else {}
