"""Run the ranks of `mrc collperf`, started here or by torchrun; rank 0 prints the results."""

import logging
import os
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from openmrc.errors import ConfigError, MrcError
from openmrc.programs.outcome import print_json, stoppable
from openmrc.programs.training.measurement import (
    HEADER,
    OPS,
    CollperfLine,
    CollperfSettings,
    MrcCollectives,
    check_settings,
    csv_of,
    measure,
    sizes,
    summary,
    text_of,
)
from openmrc.train.errors import CollectiveError
from openmrc.train.execution import executor
from openmrc.train.group import Group
from openmrc.train.reduction import Op

Array = NDArray[Any]


class GlooBackend:
    """Backend `gloo`: the collectives of a Gloo process group."""

    def __init__(self, rank: int, size: int, address: str) -> None:
        """Connect at "host:port"; ConfigError if torch is not installed."""
        try:
            import torch
            import torch.distributed as dist
        except ImportError as error:
            raise ConfigError("--backend gloo needs torch: pip install torch") from error
        warnings.filterwarnings("ignore", category=FutureWarning, module="torch")
        torch.set_num_threads(1)
        self.rank, self.size = rank, size
        self._torch, self._dist = torch, dist
        dist.init_process_group("gloo", init_method=f"tcp://{address}", rank=rank, world_size=size)

    def call(
        self, name: str, given: Array, out: Array, settings: CollperfSettings, asynchronous: bool
    ) -> Callable[[], None]:
        """Start a collective; the copy for those without an out-of-place form is included in the time."""
        dist, root = self._dist, settings.root
        source, target = self._tensor(given, settings), self._tensor(out, settings)
        op = self._op(OPS[settings.op])
        if name in ("all_reduce", "broadcast", "reduce"):
            if out is not given:
                target.copy_(source)
            if name == "all_reduce":
                work = dist.all_reduce(target, op, async_op=True)
            elif name == "broadcast":
                work = dist.broadcast(target, root, async_op=True)
            else:
                work = dist.reduce(target, root, op, async_op=True)
        elif name == "all_gather":
            work = dist.all_gather_into_tensor(target, source, async_op=True)
        elif name == "reduce_scatter":
            work = dist.reduce_scatter_tensor(target, source, op, async_op=True)
        elif name == "alltoall":
            work = dist.all_to_all_single(target, source, async_op=True)
        else:
            receiving = dist.irecv(target, (self.rank - 1) % self.size)
            sending = dist.isend(source, (self.rank + 1) % self.size)

            def wait_for_both() -> None:
                receiving.wait()
                sending.wait()

            return wait_for_both
        if not asynchronous:
            work.wait()
        return lambda: None if work.is_completed() else work.wait()

    def barrier(self) -> None:
        self._dist.barrier()

    def combine(self, value: float, op: Op) -> float:
        tensor = self._torch.tensor([value], dtype=self._torch.float64)
        self._dist.all_reduce(tensor, self._op(op))
        return float(tensor[0])

    def close(self) -> None:
        self._dist.destroy_process_group()

    def _tensor(self, array: Array, settings: CollperfSettings) -> Any:
        if settings.dtype == "bfloat16":
            return self._torch.from_numpy(array.view(np.int16)).view(self._torch.bfloat16)
        return self._torch.from_numpy(array)

    def _op(self, op: Op) -> Any:
        return getattr(self._dist.ReduceOp, op.name)


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
    backend: str
    planes: str
    impair: str | None
    timeout: float


def run(job: CollperfJob, ranks: int, csv_file: Path | None, json_file: Path | None, as_json: bool) -> None:
    """Measure, print the results and write the files.

    Raises ConfigError for invalid settings, MrcError for failures and wrong results.
    """
    _report_errors_once()
    with stoppable():
        _run(job, ranks, csv_file, json_file, as_json)


def _run(job: CollperfJob, ranks: int, csv_file: Path | None, json_file: Path | None, as_json: bool) -> None:
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
        _report(job, lines, csv_file, json_file, as_json)


def _report_errors_once() -> None:
    """Keep the library from logging the error that this command prints."""
    executor.log.setLevel(logging.CRITICAL)


def _report(
    job: CollperfJob, lines: list[CollperfLine], csv_file: Path | None, json_file: Path | None, as_json: bool
) -> None:
    document = {"backend": job.backend, "settings": job.settings, "results": lines}
    if as_json:
        print_json(document)
    else:
        print("\n".join(summary(lines)))  # noqa: T201
    if csv_file is not None:
        csv_file.write_text(csv_of(lines))
    if json_file is not None:
        json_file.write_bytes(msgspec.json.encode(document))
    if any(side.wrong for line in lines for side in (line.out_of_place, line.in_place)):
        raise MrcError("collperf: wrong results, see column #wrong")


def _measure(job: CollperfJob, rank: int, size: int, address: str, prints: bool) -> list[CollperfLine]:
    if prints:
        print(f"# mrc collperf {job.settings.collective}, {size} ranks, backend {job.backend}")  # noqa: T201
        print(HEADER)  # noqa: T201
    lines = []
    with _backend(job, rank, size, address) as backend:
        for amount in sizes(job.settings):
            line = measure(backend, job.settings, amount)
            lines.append(line)
            if prints:
                print(text_of(line), flush=True)  # noqa: T201
    return lines


@contextmanager
def _backend(job: CollperfJob, rank: int, size: int, address: str) -> Iterator[Any]:
    if job.backend == "gloo":
        gloo = GlooBackend(rank, size, address)
        yield gloo
        gloo.close()
        return
    with Group.rendezvous(rank, size, address, planes=job.planes, timeout=job.timeout, faults=job.impair) as group:
        yield MrcCollectives(group)


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
