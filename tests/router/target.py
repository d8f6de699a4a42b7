"""The router as a process, before fake engines that judge what reaches them, everything proved already."""

import asyncio
import subprocess
from contextlib import AsyncExitStack
from typing import Any

from hpcserve.discovery import write_record
from hpcserve.nouns import PairProof, Role, RouterState
from hpcserve.wire import encode_record, encode_yaml
from tests import synthetic
from tests.router.fake_engine import FakeEngine
from tests.router.guard import Guard
from tests.router.plans import plan_of
from tests.router.processes import Job, until
from tests.router.watched import Watched


class Target:
    def __init__(self, job: Job) -> None:
        self.job = job
        self.engines = [FakeEngine(Role.PREFILL), FakeEngine(Role.DECODE)]
        self.guard = Guard(self.engines)
        self.faults: list[dict[str, Any]] = []
        """Of the engines: bytes that they could not read."""
        self.process: subprocess.Popen[bytes] | None = None

    async def start(self, stack: AsyncExitStack) -> Watched:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: self.faults.append(context))
        directory = self.job.directory
        for engine in self.engines:
            await engine.start()
            stack.push_async_callback(engine.stop)
            write_record(directory / "endpoints" / f"{engine.id}.json", engine.endpoint)
        (directory / "plan.json").write_bytes(encode_record(plan_of(self.engines)))
        (directory / "service.yaml").write_text(encode_yaml(synthetic.service()))
        proof = PairProof(
            prefill="prefill-0",
            prefill_generation="g1",
            decode="decode-0",
            decode_generation="g1",
            proved=True,
            reason="as told",
        )
        state = RouterState(ready=False, ready_since_utc=None, waiting_for=(), proofs=(proof,), mismatches=())
        write_record(directory / "router.state.json", state)
        self.process = self.job.start_router()
        await asyncio.to_thread(until, self.job.ready, within_s=600)
        heart = loop.create_task(self.job.beat())
        stack.callback(heart.cancel)
        return Watched(self.process.pid)

    def check(self, number: int) -> None:
        """It lives, serves, and nothing came where it must not."""
        assert self.process is not None
        assert self.process.poll() is None, f"the router ended by one of the inputs before {number}"
        assert not self.guard.found, "\n".join(self.guard.found[:5])
        assert not self.faults, self.faults[:5]
        log = (self.job.directory / "router.log").read_text(errors="replace")
        assert "Traceback" not in log, log[log.index("Traceback") - 500 :][:4000]
