"""What is measured: a service that is up, as its job directory describes it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hpcserve.discovery import read_dir_record, read_records
from hpcserve.errors import ServiceError
from hpcserve.nouns import Endpoint, Plan, Role, RouterAddress, Service, Site

__all__ = ["Target", "generations", "target_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A service that is up. `directory` is its job directory, `url` and `api_key` its router's."""

    directory: Path
    url: str
    api_key: str = field(repr=False)
    plan: Plan
    service: Service
    site: Site
    endpoints: Mapping[str, Endpoint]

    @property
    def pullers(self) -> tuple[Endpoint, ...]:
        """Workers that pull KV, and so count its transfers."""
        return tuple(endpoint for endpoint in self.endpoints.values() if endpoint.role == Role.DECODE)

    @property
    def engines(self) -> tuple[str, ...]:
        """Names and versions of the engines, each once."""
        return tuple(sorted({f"{each.engine} {each.engine_version}" for each in self.endpoints.values()}))

    @property
    def simulated(self) -> bool:
        """Whether any worker is simulated."""
        return any(endpoint.simulated for endpoint in self.endpoints.values())

    @property
    def kv_bytes_per_token(self) -> float | None:
        """Bytes of KV that one prompt token moves; None where nothing is moved."""
        if not self.plan.paths:
            return None
        return self.plan.paths[0].kv_bytes / self.service.workload.input_tokens

    @property
    def block_tokens(self) -> int:
        """Tokens of one KV block, of the largest among the workers."""
        return max((each.handoff.block_size for each in self.endpoints.values() if each.handoff is not None), default=1)

    @property
    def predicted_transfer_ms(self) -> float | None:
        """What the plan promises for one typical request alone, mean over its paths; None where nothing is moved."""
        times = [path.transfer_ms for path in self.plan.paths]
        return sum(times) / len(times) if times else None


def target_of(directory: Path, *, service: Service, site: Site) -> Target:
    """The service whose job directory this is; raises ServiceError where a part of it is not there yet."""
    address = read_dir_record(directory, "router.json", RouterAddress)
    plan = read_dir_record(directory, "plan.json", Plan)
    if address is None or plan is None:
        missing = "router.json" if address is None else "plan.json"
        raise ServiceError(f"{directory} has no {missing}", remedy="wait until the service is ready")
    return Target(
        directory=directory,
        url=address.url,
        api_key=(directory / "keys/api.key").read_text(encoding="ascii").strip(),
        plan=plan,
        service=service,
        site=site,
        endpoints=read_records(directory, "endpoints", Endpoint).records,
    )


def generations(directory: Path) -> dict[str, str]:
    """Which start of each worker is announced now: another generation is another worker."""
    return {name: each.generation for name, each in read_records(directory, "endpoints", Endpoint).records.items()}
