"""Measure and verify collectives with the sizes, columns and definitions of nccl-tests.

algbw is size / time. busbw is algbw times a factor that makes it comparable to the rate of a link for any number of
ranks (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md).
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np
import typer
from numpy.typing import NDArray

from openmrc.errors import ConfigError
from openmrc.train.group import Group
from openmrc.train.reduction import NUMPY, DType, Op

Array = NDArray[Any]

DTYPES = {
    "int8": DType.INT8, "uint8": DType.UINT8, "int32": DType.INT32, "uint32": DType.UINT32, "int64": DType.INT64,
    "uint64": DType.UINT64, "half": DType.FLOAT16, "float": DType.FLOAT32, "double": DType.FLOAT64,
    "bfloat16": DType.BFLOAT16,
}  # fmt: skip
OPS = {"sum": Op.SUM, "prod": Op.PRODUCT, "min": Op.MIN, "max": Op.MAX, "avg": Op.AVG}
_FACTORS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda ranks: 2 * (ranks - 1) / ranks,
    "all_gather": lambda ranks: (ranks - 1) / ranks,
    "reduce_scatter": lambda ranks: (ranks - 1) / ranks,
    "alltoall": lambda ranks: (ranks - 1) / ranks,
    "broadcast": lambda ranks: 1.0,
    "reduce": lambda ranks: 1.0,
    "sendrecv": lambda ranks: 1.0,
}
COLLECTIVES = tuple(_FACTORS)
_SPLIT = frozenset({"all_gather", "reduce_scatter", "alltoall"})  # the size counts the parts of all ranks
_REDUCING = frozenset({"all_reduce", "reduce_scatter", "reduce"})


@dataclass(frozen=True)
class CollperfCalls:
    """What is called, how often, and which time counts."""

    panel: ClassVar = "Calls"
    iterations: Annotated[int, typer.Option("-n", "--iters", min=1, help="Measured calls per size.")] = 20
    warmup: Annotated[int, typer.Option("-w", "--warmup_iters", min=0, help="Warm-up calls.")] = 1
    aggregated: Annotated[int, typer.Option("-m", "--agg_iters", min=1, help="Calls in flight before waiting.")] = 1
    check: Annotated[int, typer.Option("-c", "--check", min=0, max=1, help="1: verify results.")] = 1
    op: Annotated[str, typer.Option("-o", "--op", help="sum, prod, min, max, avg.")] = "sum"
    dtype: Annotated[str, typer.Option("-d", "--datatype", help="float, double, half, bfloat16, int8, ...")] = "float"
    root: Annotated[int, typer.Option("-r", "--root", min=0, help="Root rank of broadcast and reduce.")] = 0
    average: Annotated[
        int,
        typer.Option(
            "-a", "--average", min=0, max=3, help="Time of the ranks: 0 rank 0, 1 average, 2 minimum, 3 maximum."
        ),
    ] = 1


@dataclass(frozen=True, kw_only=True)
class CollperfSettings(CollperfCalls):
    """Measurement parameters, as all ranks get them."""

    collective: str
    check: bool = True
    least: int = 32 << 20  # bytes
    most: int = 32 << 20
    step: int = 0  # bytes; 0: multiply by `factor`
    factor: int = 2


class CollperfResult(msgspec.Struct, frozen=True):
    """The result of one size, out of place or in place."""

    time_us: float
    algbw: float  # GB/s
    busbw: float  # GB/s
    wrong: int | None  # elements with a wrong value; None: not checked


class CollperfLine(msgspec.Struct, frozen=True):
    """The results of one size."""

    size: int  # bytes
    count: int  # elements of one rank
    type: str
    redop: str
    root: int
    out_of_place: CollperfResult
    in_place: CollperfResult


class MrcCollectives:
    """The collectives of a `Group`, by their names."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self.rank, self.size = group.rank, group.size

    def call(
        self, name: str, given: Array, out: Array, settings: CollperfSettings, asynchronous: bool
    ) -> Callable[[], None]:
        """Start a collective from `given` to `out`; return a function that waits for it."""
        group, dtype, op, root = self._group, DTYPES[settings.dtype], OPS[settings.op], settings.root
        options: dict[str, Any] = {"dtype": dtype, "async_op": asynchronous}
        match name:
            case "all_reduce":
                return group.all_reduce(given, op, out=None if out is given else out, **options).wait
            case "reduce":
                return group.reduce(given, root, op, out=None if out is given else out, **options).wait
            case "broadcast":
                if out is not given and self.rank == root:
                    out[:] = given
                return group.broadcast(out, root, **options).wait
            case "all_gather":
                return group.all_gather(out, given, **options).wait
            case "reduce_scatter":
                return group.reduce_scatter(out, given, op, **options).wait
            case "alltoall":
                return group.all_to_all(out, given, **options).wait
        ahead, behind = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        receiving = group.recv(out, behind, async_op=True)
        sending = group.send(given, ahead, async_op=True)

        def wait_for_both() -> None:
            receiving.wait()
            sending.wait()

        return wait_for_both

    def barrier(self) -> None:
        self._group.barrier()

    def combine(self, value: float, op: Op) -> float:
        array = np.array([value])
        self._group.all_reduce(array, op)
        return float(array[0])


def sizes(settings: CollperfSettings) -> Iterator[int]:
    """Return the sizes in bytes, with the steps of nccl-tests."""
    size = settings.least
    while size <= settings.most:
        yield size
        size = size + settings.step if settings.step else size * settings.factor
        if size == 0:
            return


def check_settings(settings: CollperfSettings, ranks: int) -> None:
    """Raise ConfigError for invalid settings."""
    for name, value, known in (
        ("collective", settings.collective, COLLECTIVES),
        ("-d", settings.dtype, tuple(DTYPES)),
        ("-o", settings.op, tuple(OPS)),
    ):
        if value not in known:
            raise ConfigError(f"{name}: {value!r} is not one of {', '.join(known)}")
    if not 0 <= settings.root < ranks:
        raise ConfigError(f"-r: root {settings.root} is not in 0..{ranks - 1}")
    if settings.least > settings.most or settings.least < 0:
        raise ConfigError(f"-b, -e: {settings.least} to {settings.most} bytes is not a valid range")
    if not settings.step and settings.factor < 2 and settings.least != settings.most:
        raise ConfigError(f"-f: {settings.factor} is below 2, and -i is not given")


def seconds_in_place(backend: MrcCollectives, settings: CollperfSettings, size: int) -> float:
    """Return the duration (s) of one call in place, for comparisons."""
    return _side(backend, settings, _count(backend, settings, size), True)[0]


def measure(backend: MrcCollectives, settings: CollperfSettings, size: int) -> CollperfLine:
    """Measure one size."""
    item = NUMPY[DTYPES[settings.dtype]].itemsize
    count = _count(backend, settings, size)
    sides = [_side(backend, settings, count, in_place) for in_place in (False, True)]
    total = count * item * (backend.size if settings.collective in _SPLIT else 1)
    redop = settings.op if settings.collective in _REDUCING else "none"
    root = settings.root if settings.collective in ("broadcast", "reduce") else -1
    results = [_result(backend, settings.collective, total, seconds, wrong) for seconds, wrong in sides]
    return CollperfLine(total, count, settings.dtype, redop, root, *results)


def _count(backend: MrcCollectives, settings: CollperfSettings, size: int) -> int:
    """Return the number of elements of one rank."""
    whole = size // NUMPY[DTYPES[settings.dtype]].itemsize
    return whole // backend.size if settings.collective in _SPLIT else whole


def _result(backend: MrcCollectives, name: str, size: int, seconds: float, wrong: int | None) -> CollperfResult:
    rate = size / seconds / 1e9 if seconds > 0 else 0.0
    return CollperfResult(seconds * 1e6, rate, rate * _FACTORS[name](backend.size), wrong)


def _side(backend: MrcCollectives, settings: CollperfSettings, count: int, in_place: bool) -> tuple[float, int | None]:
    """Return (seconds per call, wrong elements of all ranks or None if not checked)."""
    buffers = _Buffers(backend, settings, count, in_place)
    for _ in range(settings.warmup):
        backend.call(settings.collective, buffers.given, buffers.out, settings, False)()
    backend.barrier()
    begun = time.perf_counter()
    for _ in range(settings.iterations):
        waits = [
            backend.call(settings.collective, buffers.given, buffers.out, settings, settings.aggregated > 1)
            for _ in range(settings.aggregated)
        ]
        for wait in waits:
            wait()
    seconds = (time.perf_counter() - begun) / max(settings.iterations * settings.aggregated, 1)
    seconds = _combined(backend, seconds, settings.average)
    if not settings.check:
        return seconds, None
    buffers.fill()
    backend.call(settings.collective, buffers.given, buffers.out, settings, False)()
    return seconds, int(backend.combine(buffers.wrong(), Op.SUM))


def _combined(backend: MrcCollectives, seconds: float, average: int) -> float:
    op = {1: Op.SUM, 2: Op.MIN, 3: Op.MAX}.get(average)
    if op is None:
        return seconds
    value = backend.combine(seconds, op)
    return value / backend.size if op == Op.SUM else value


class _Buffers:
    """Input, output and expected output of a collective."""

    def __init__(self, backend: MrcCollectives, settings: CollperfSettings, count: int, in_place: bool) -> None:
        self._backend, self._settings, self._count = backend, settings, count
        self._kind = DTYPES[settings.dtype]
        ranks, name, dtype = backend.size, settings.collective, NUMPY[self._kind]
        total = ranks * count
        self.given = np.zeros(total if name in ("reduce_scatter", "alltoall") else count, dtype)
        if name == "all_gather":
            self.out = np.zeros(total, dtype)
            if in_place:
                self.given = self.out[backend.rank * count : (backend.rank + 1) * count]
        elif name == "reduce_scatter":
            part = self.given[backend.rank * count : (backend.rank + 1) * count]
            self.out = part if in_place else np.zeros(count, dtype)
        elif in_place and name not in ("alltoall", "sendrecv"):  # no in-place form, as in nccl-tests
            self.out = self.given
        else:
            self.out = np.zeros_like(self.given)
        self.fill()

    def fill(self) -> None:
        """Set the input; clear everything else."""
        if self.out is not self.given:
            self.out[:] = 0
        self.given[:] = self._pattern(self._backend.rank, len(self.given))

    def wrong(self) -> int:
        expected = self._expected()
        return 0 if expected is None else int(np.count_nonzero(self.out != expected))

    def _expected(self) -> Array | None:
        backend, settings, count = self._backend, self._settings, self._count
        me, ranks, root = backend.rank, range(backend.size), settings.root
        match settings.collective:
            case "all_reduce":
                return self._reduced([self._pattern(rank, count) for rank in ranks])
            case "reduce":
                return self._reduced([self._pattern(rank, count) for rank in ranks]) if me == root else None
            case "broadcast":
                return self._pattern(root, count)
            case "all_gather":
                return np.concatenate([self._pattern(rank, count) for rank in ranks])
            case "reduce_scatter":
                mine = slice(me * count, (me + 1) * count)
                return self._reduced([self._pattern(rank, backend.size * count)[mine] for rank in ranks])
            case "alltoall":
                mine = slice(me * count, (me + 1) * count)
                return np.concatenate([self._pattern(rank, backend.size * count)[mine] for rank in ranks])
        return self._pattern((me - 1) % backend.size, count)

    def _pattern(self, rank: int, count: int) -> Array:
        """Return small integers, whose sum does not depend on the order of additions."""
        return self._narrow((np.arange(count) + 3 * rank) % 5 + 1)

    def _reduced(self, inputs: Sequence[Array]) -> Array:
        wide = [self._wide(each) for each in inputs]
        op = self._settings.op
        ufunc = {"sum": np.add, "avg": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}[op]
        total = wide[0]
        for each in wide[1:]:
            total = self._wide(self._narrow(ufunc(total, each)))
        return self._narrow(total / len(inputs) if op == "avg" else total)

    def _wide(self, values: Array) -> Array:
        if self._kind == DType.BFLOAT16:
            return (values.astype(np.uint32) << 16).view(np.float32)
        return values

    def _narrow(self, values: Array) -> Array:
        if self._kind == DType.BFLOAT16:
            bits = values.astype(np.float32).view(np.uint32)
            return ((bits + (0x7FFF + (bits >> 16 & 1))) >> 16).astype(np.uint16)
        return values.astype(NUMPY[self._kind])


_SIDE = "    time   algbw   busbw #wrong"
_UNITS = "    (us)  (GB/s)  (GB/s)       "
HEADER = "\n".join(
    [
        f"#{'out-of-place':>74}{'in-place':>31}",
        f"#       size         count      type   redop    root {_SIDE} {_SIDE}",
        f"#        (B)    (elements)                           {_UNITS} {_UNITS}".rstrip(),
    ]
)


def text_of(line: CollperfLine) -> str:
    """Format a line with the columns of nccl-tests."""
    sides = "".join(
        f" {_time(side.time_us):>8} {side.algbw:7.2f} {side.busbw:7.2f} {_wrong(side):>6}"
        for side in (line.out_of_place, line.in_place)
    )
    return f"{line.size:12} {line.count:13} {line.type:>9} {line.redop:>7} {line.root:7}{sides}"


def summary(lines: Sequence[CollperfLine]) -> list[str]:
    """Return the closing lines."""
    sides = [side for line in lines for side in (line.out_of_place, line.in_place)]
    wrong = sum(side.wrong or 0 for side in sides)
    average = sum(side.busbw for side in sides) / max(len(sides), 1)
    return [
        f"# Out of bounds values : {wrong} {'OK' if not wrong else 'FAILED'}",
        f"# Avg bus bandwidth    : {average:.6g}",
    ]


def _time(us: float) -> str:
    return f"{us:.2f}" if us < 1000 else f"{us:.1f}" if us < 10_000 else f"{us:.0f}"


def _wrong(side: CollperfResult) -> str:
    return "N/A" if side.wrong is None else str(side.wrong)
