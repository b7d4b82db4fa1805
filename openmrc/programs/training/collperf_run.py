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

_END_SECONDS = 90.0  # time for the other ranks to exit: those that wait for a collective give up after 60


def free_port() -> int:
    """Return a free TCP port on the loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def other_ranks(command: Sequence[str], ranks: int) -> Iterator[None]:
    """Start ranks 1 and up by a command to which the number is added; this process is rank 0 in the block.

    Afterwards they are waited for, and killed if they do not exit. MrcError if one does not, or has failed.
    """
    processes = [subprocess.Popen([*command, str(rank)], process_group=0) for rank in range(1, ranks)]
    try:
        yield
        for rank, process in enumerate(processes, 1):
            try:
                code = process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                raise MrcError(f"rank {rank} did not exit within {_END_SECONDS:g} s of rank 0") from None
            if code:
                raise MrcError(f"rank {rank} exited with code {code}")
    finally:
        for process in processes:
            process.kill()
            process.wait()


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
        text = msgspec.json.encode(job).decode()
        with other_ranks([sys.executable, "-m", __name__, text, address, str(ranks)], ranks):
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
