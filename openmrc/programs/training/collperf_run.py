"""Run the ranks of `mrc collperf`, started here or by torchrun; rank 0 prints the results."""

import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from openmrc.errors import ConfigError, MrcError
from openmrc.programs.outcome import give, stoppable
from openmrc.programs.training.measurement import (
    HEADER,
    CollperfLine,
    CollperfSettings,
    MrcCollectives,
    check_settings,
    measure,
    sizes,
    summary,
    text_of,
)
from openmrc.train.errors import CollectiveError
from openmrc.train.execution import executor
from openmrc.train.group import Group


@contextmanager
def killed_at_end(processes: Sequence[subprocess.Popen[bytes]]) -> Iterator[None]:
    """Kill processes that are still running when the block ends; the block may add processes."""
    try:
        yield
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.wait()


def free_port() -> int:
    """Return a free TCP port on the loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


_END_SECONDS = 10.0  # time for the other ranks to exit


class CollperfJob(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of a job, equal at all ranks."""

    settings: CollperfSettings
    planes: str
    impair: str | None
    timeout: float


def run(job: CollperfJob, ranks: int, as_json: bool) -> None:
    """Measure and print the results.

    Raises ConfigError for invalid settings, MrcError for failures and wrong results.
    """
    _report_errors_once()
    with stoppable():
        _run(job, ranks, as_json)


def _run(job: CollperfJob, ranks: int, as_json: bool) -> None:
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        address = f"{os.environ.get('MASTER_ADDR', '127.0.0.1')}:{int(os.environ.get('MASTER_PORT', '29500')) + 1}"
        check_settings(job.settings, size)
        lines = _measure(job, rank, size, address, rank == 0 and not as_json)
    else:
        check_settings(job.settings, ranks)
        address, rank = f"127.0.0.1:{free_port()}", 0
        with _others(job, ranks, address):
            lines = _measure(job, 0, ranks, address, not as_json)
    if rank == 0:
        _report(job, lines, as_json)


def _report_errors_once() -> None:
    """Keep the library from logging the error that this command prints."""
    executor.log.setLevel(logging.CRITICAL)


def _report(job: CollperfJob, lines: list[CollperfLine], as_json: bool) -> None:
    give({"settings": job.settings, "results": lines}, as_json, "\n".join(summary(lines)))
    if any(side.wrong for line in lines for side in (line.out_of_place, line.in_place)):
        raise MrcError("collperf: wrong results, see column #wrong")


def _measure(job: CollperfJob, rank: int, size: int, address: str, prints: bool) -> list[CollperfLine]:
    if prints:
        print(f"# mrc collperf {job.settings.collective}, {size} ranks")  # noqa: T201
        print(HEADER)  # noqa: T201
    lines = []
    with Group.rendezvous(rank, size, address, planes=job.planes, timeout=job.timeout, faults=job.impair) as group:
        for amount in sizes(job.settings):
            line = measure(MrcCollectives(group), job.settings, amount)
            lines.append(line)
            if prints:
                print(text_of(line), flush=True)  # noqa: T201
    return lines


@contextmanager
def _others(job: CollperfJob, ranks: int, address: str) -> Iterator[None]:
    """Start ranks 1 and up; wait for them at the end of the block, and kill those that do not exit."""
    text = msgspec.json.encode(job).decode()
    command = [sys.executable, "-m", "openmrc.programs.training.collperf_run", text, address, str(ranks)]
    processes = [subprocess.Popen([*command, str(rank)], process_group=0) for rank in range(1, ranks)]
    with killed_at_end(processes):
        yield
        for process in processes:
            process.wait(_END_SECONDS)


def main() -> None:
    """Run one of the ranks that `run` starts."""
    job = msgspec.json.decode(sys.argv[1], type=CollperfJob)
    _report_errors_once()
    try:
        _measure(job, int(sys.argv[4]), int(sys.argv[3]), sys.argv[2], False)
    except CollectiveError as error:
        sys.exit(1 if error.is_from_peer else f"mrc collperf, rank {sys.argv[4]}: {error}")
    except (MrcError, ConfigError) as error:
        sys.exit(f"mrc collperf, rank {sys.argv[4]}: {error}")


if __name__ == "__main__":
    main()
