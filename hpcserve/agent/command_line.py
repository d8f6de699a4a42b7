"""The agent of one node, from its command line to its exit code."""

import argparse
import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from hpcserve.agent.alone import claim_node
from hpcserve.agent.duty import keep_alive
from hpcserve.agent.life import FAILED, failure_in, is_told_to_stop, life_of
from hpcserve.agent.pace import Pace
from hpcserve.agent.preparation import Options, prepare
from hpcserve.agent.processes import end_leftovers
from hpcserve.agent.station import LOG, Station
from hpcserve.discovery import read_dir_record, read_records, write_record
from hpcserve.errors import HpcserveError
from hpcserve.nouns import JobFailure, Plan, WorkerState
from hpcserve.wire import UnreadableRecordError

__all__ = ["GAVE_UP", "NOT_ALONE", "main"]

GAVE_UP = 3
"""Exit code: the job as a whole has failed, `failed.json` says why, starting this agent again is pointless."""

NOT_ALONE = 4
"""Exit code: another agent of this job runs on this node."""

_JUDGE_EVERY = 5
"""Every so many looks for `failed.json` the head node looks whether any worker is left that might serve."""


def main(arguments: Sequence[str] | None = None) -> int:
    """0: it was told to stop and its workers have ended. 3: the job gave up. Anything else: start it again."""
    parser = argparse.ArgumentParser(prog="python -m hpcserve.agent", description="Runs one node's part of a job.")
    parser.add_argument("--job", type=Path, required=True, help="the job directory")
    parser.add_argument("--node", required=True, help="this node's name, as in the site file")
    parser.add_argument("--nodes", type=int, default=1, help="how many nodes the job has")
    parser.add_argument("--head", action="store_true", help="this is the job's first node: it places the workers")
    parser.add_argument(
        "--end-leftovers", action="store_true", help="only end what earlier agents of this node left running"
    )
    given = parser.parse_args(arguments)
    logging.Formatter.converter = time.gmtime
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format="%(asctime)s.%(msecs)03d+0000 %(levelname)s %(message)s",
        datefmt="%FT%T",
    )
    job = given.job.resolve()
    alone = claim_node(job, given.node)
    if alone is None:
        LOG.error("%s: another agent of this job runs on this node already; nothing was touched", given.node)
        return NOT_ALONE
    with alone:
        return _act(given, job)


def _act(given: argparse.Namespace, job: Path) -> int:
    if given.end_leftovers:
        ended = asyncio.run(end_leftovers(job / "workers", node=given.node, terminate_s=Pace().terminate_s))
        LOG.info("%s: ended: %s", given.node, ", ".join(ended) or "nothing was left")
        return 0
    options = Options(job=job, node=given.node, nodes=given.nodes, head=given.head, life=life_of(os.environ))
    return asyncio.run(_run(options, environment=os.environ, pace=Pace()))


async def _run(options: Options, *, environment: Mapping[str, str], pace: Pace) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    failures: list[JobFailure] = []
    watch = asyncio.create_task(_watch(options, pace, stopping, failures))
    try:
        prepared = await _unless_stopped(options, environment, pace, stopping)
        if prepared is not None:
            station, plan = prepared
            if station is None:  # an unfit node only waits for the job's end; a head node also judges it meanwhile
                await stopping.wait()
            else:
                await keep_alive(station, plan, stopping)
    except HpcserveError as error:
        LOG.error("%s", error)
        failures.append(JobFailure(reason=str(error), where=f"agent of {options.node}", life=options.life))
        _record_failure(options, failures[-1])
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
    # An agent that was restarted may be told to stop before it has adopted what still runs.
    await end_leftovers(options.job / "workers", node=options.node, terminate_s=pace.terminate_s)
    return GAVE_UP if failures else 0


def _record_failure(options: Options, failure: JobFailure) -> None:
    """Write `failed.json`, unless another agent has; where that fails, this agent is started again and says it then."""
    try:
        if failure_in(options.job, options.life) is None:
            write_record(options.job / FAILED, failure)
    except OSError as error:
        LOG.error("%s could not be written: %s", FAILED, error)


async def _unless_stopped(
    options: Options, environment: Mapping[str, str], pace: Pace, stopping: asyncio.Event
) -> tuple[Station | None, Plan] | None:
    """What preparing gives, or None where the stop comes first, which ends it."""
    preparing = asyncio.create_task(prepare(options, environment=environment, pace=pace))
    stop = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait((preparing, stop), return_when=asyncio.FIRST_COMPLETED)
        return preparing.result() if preparing.done() else None
    finally:
        for task in (preparing, stop):
            task.cancel()
        await asyncio.gather(preparing, stop, return_exceptions=True)


async def _watch(options: Options, pace: Pace, stopping: asyncio.Event, failures: list[JobFailure]) -> None:
    """See when the job is to end, or has failed: by another's word or, on the head node, on its own account."""
    looks = 0
    seen_s, told = time.monotonic(), False
    while True:
        await asyncio.sleep(pace.watch_s)
        looks += 1
        try:
            if await asyncio.to_thread(is_told_to_stop, options.job, options.life):
                stopping.set()
            failure = await asyncio.to_thread(failure_in, options.job, options.life)
            if failure is None and options.head and looks % _JUDGE_EVERY == 0:
                failure = await asyncio.to_thread(_hopeless, options)
            seen_s, told = time.monotonic(), False
        except OSError as error:
            if not told:
                LOG.warning("cannot look for %s, trying on: %s", FAILED, error)
            told = True
            if isinstance(error, FileNotFoundError) and time.monotonic() - seen_s > pace.gone_s:
                LOG.error("the job directory is gone: nobody can find this job any more, so it ends")
                stopping.set()
                return
            continue
        if failure is not None:
            LOG.error("the job gave up: %s: %s", failure.where, failure.reason)
            failures.append(failure)
            stopping.set()
            return


def _hopeless(options: Options) -> JobFailure | None:
    """The failure, now recorded, when not one planned worker is left that might serve. Raises OSError."""
    try:
        plan = read_dir_record(options.job, "plan.json", Plan)
    except UnreadableRecordError:
        return None  # it is looked at again
    states = read_records(options.job, "workers", WorkerState).records.values()
    failed = {state.id: state for state in states if state.phase == "failed"}
    if plan is None or any(worker.id not in failed for worker in plan.workers):
        return None
    first = failed[plan.workers[0].id]
    failure = JobFailure(reason=f"every worker failed; {first.id}: {first.detail}", where=first.node, life=options.life)
    write_record(options.job / FAILED, failure)
    return failure
