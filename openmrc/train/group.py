"""A group of ranks and its collectives over NumPy arrays.

    group = Group.rendezvous(rank, size, "10.0.0.1:29500", planes="4")   # a TCP store that rank 0 serves
    group = Group(store, rank, size, planes=["10.0.0.1", "10.0.1.1"])    # any store with set, get, add, check

    group.all_reduce(array)                                   # in place; with `out=` out of place
    work = group.all_reduce(array, Op.AVG, async_op=True)     # work.wait(), .done(), .result(), .exception()
    group.send(array, to=1, tag=7); group.recv(array, source=0, tag=7)
    group.close()

A group executes its collectives in the order of the calls, which must be the same at all ranks. Arrays may have any
shape; arrays that are not contiguous are copied. Do not modify an array, or read an output, before its work is done.
A collective that fails aborts the group: every rank gets the error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any

import numpy as np

from openmrc.collectives.choice import Collective, CollectiveAlgorithm, choose
from openmrc.collectives.plan import Space
from openmrc.train.arrays import Array, check_apart, contiguous, in_and_out, parts, per_rank
from openmrc.train.buffers import Blocks, Bytes, Copies, SpareMemory, bytes_of, even_bounds
from openmrc.train.errors import CollectiveError, CollectiveMismatchError, UnsupportedError
from openmrc.train.execution.endpoint import GroupTerms
from openmrc.train.execution.executor import Executor
from openmrc.train.execution.point_to_point import ANY_SOURCE, Transfer
from openmrc.train.execution.program import program_for
from openmrc.train.execution.queued import Call
from openmrc.train.execution.recorder import FlightRecorder
from openmrc.train.execution.run import CollectiveData
from openmrc.train.execution.small import SmallPlan, is_flat, scratch_for
from openmrc.train.execution.work import Work
from openmrc.train.links.devices import open_context
from openmrc.train.links.frames import INLINE, REDUCING, ROOTED
from openmrc.train.links.mesh import Timers, timers_for
from openmrc.train.links.store import Store, TcpStore
from openmrc.train.reduction import NUMPY, DType, Op, check, divide, dtype_of, fold_of
from openmrc.verbs import Context

TIMEOUT = 300.0  # s
LARGEST_TAG = (1 << 32) - 1
_EQUAL_RESULTS = frozenset({Collective.ALL_REDUCE, Collective.BROADCAST, Collective.ALL_GATHER})


class Group:
    """One rank of a group of connected ranks."""

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        *,
        planes: Sequence[str] | str | None = None,
        timeout: float = TIMEOUT,
        name: str = "group",
        context: Context | None = None,
        faults: str | None = None,
        timers: Timers | None = None,
        shared_memory: bool = False,
        compares_results: bool = False,
    ) -> None:
        """Connect to the other ranks through `store`, under keys that begin with mrc/`name`.

        `planes` are local addresses, or "4" for four planes on the loopback; None: MRC_PLANES, else MRC_NIC, else all
        interfaces. `timeout` (s) limits the rendezvous and each collective. `context` is an endpoint shared with other
        groups (see `open_context`), which `close` leaves open; without it the group opens its own, and `faults` is the
        schedule of impairments of packets that arrive there. With `shared_memory` ranks of this host exchange data
        through shared memory instead of the planes, unless MRC_SHARED_MEMORY=0. With `compares_results`, at all ranks
        or none, the ranks compare a checksum of each result that must be equal at all: CollectiveMismatchError if not.

        Raises UnsupportedError for an invalid rank, RendezvousError if the ranks cannot connect.
        """
        if not 0 <= rank < size:
            raise UnsupportedError(f"rank: {rank} is not in 0..{size - 1}")
        self.rank = rank
        self.size = size
        self.name = name
        self.timeout = timeout
        self._compares_results = compares_results
        self._store: TcpStore | None = None  # created by this group
        self._scratch_of_small: Array | None = None
        self._spare = SpareMemory()
        self.context = context if context is not None else open_context(planes, max(size - 1, 1), faults)
        terms = GroupTerms(store, rank, size, name, timeout, timers or timers_for(timeout), shared_memory)
        self._executor = Executor(terms, self.context, owns_context=context is None)

    @staticmethod
    def rendezvous(
        rank: int,
        size: int,
        address: str,
        *,
        planes: Sequence[str] | str | None = None,
        timeout: float = TIMEOUT,
        **options: Any,
    ) -> Group:
        """Connect through a `TcpStore` that rank 0 serves at "host:port"; options as of `Group`."""
        host, _, port = address.rpartition(":")
        store = TcpStore(host, int(port), serve=rank == 0, timeout=timeout)
        try:
            group = Group(store, rank, size, planes=planes, timeout=timeout, **options)
        except BaseException:
            store.close()
            raise
        group._store = store
        return group

    # Collectives

    def all_reduce(
        self,
        array: Array,
        op: Op = Op.SUM,
        *,
        out: Array | None = None,
        dtype: DType | None = None,
        async_op: bool = False,
    ) -> Work:
        """Combine the arrays of all ranks; every rank gets the result, in `array` or in `out`."""
        given, result, at_end = in_and_out(array, out)
        call = self._call(Collective.ALL_REDUCE, given, dtype, op, given.nbytes)
        bounds = [0, given.size]
        if call.algorithm in (CollectiveAlgorithm.DIRECT, CollectiveAlgorithm.RING):
            bounds = even_bounds(given.size, self.size)
        spaces = _both(given, result, bounds)
        if call.algorithm == CollectiveAlgorithm.WHOLE:
            at_end = self._prepare_whole(call, given, result, spaces, at_end)
        elif self.size == 1 and given is not result:
            result[:] = given
        return self._begin(call, spaces, result if out is None else out, at_end, async_op)

    def reduce(
        self,
        array: Array,
        root: int,
        op: Op = Op.SUM,
        *,
        out: Array | None = None,
        dtype: DType | None = None,
        async_op: bool = False,
    ) -> Work:
        """Combine the arrays of all ranks at `root`, in its `array` or `out`; other ranks' arrays are not modified."""
        self._check_rank(root, "root")
        given, result, at_end = in_and_out(array, out if self.rank == root else None)
        call = self._call(Collective.REDUCE, given, dtype, op, given.nbytes, root)
        if self.size == 1 and given is not result:
            result[:] = given
        spaces = _both(given, result, [0, given.size])
        return self._begin(call, spaces, result, at_end if self.rank == root else None, async_op)

    def broadcast(self, array: Array, root: int, *, dtype: DType | None = None, async_op: bool = False) -> Work:
        """Copy the array of `root` to every rank."""
        self._check_rank(root, "root")
        given, result, at_end = in_and_out(array, None)
        call = self._call(Collective.BROADCAST, given, dtype, Op.SUM, given.nbytes, root)
        spaces: dict[int, Blocks] = {Space.OUTPUT: Blocks.of_flat(result, [0, result.size])}
        return self._begin(call, spaces, array, at_end if self.rank != root else None, async_op)

    def all_gather(
        self, out: Array | Sequence[Array], array: Array, *, dtype: DType | None = None, async_op: bool = False
    ) -> Work:
        """Collect the arrays of all ranks at every rank, in rank order; `out` is one array, or one per rank."""
        given, _ = contiguous(array)
        blocks, at_end = per_rank(out, given, self.size, "out")
        check_apart(out)
        call = self._call(Collective.ALL_GATHER, given, dtype, Op.SUM, given.nbytes)
        own = blocks.copies(self.rank, bytes_of(given))  # the plan sends it from OUTPUT
        return self._begin(call, {Space.OUTPUT: blocks}, out, at_end, async_op, first=own)

    def reduce_scatter(
        self,
        out: Array,
        array: Array | Sequence[Array],
        op: Op = Op.SUM,
        *,
        dtype: DType | None = None,
        async_op: bool = False,
    ) -> Work:
        """Combine part r of the arrays of all ranks at rank r; `array` is one array, or one per part."""
        result, at_end = contiguous(out, True)
        blocks, _ = per_rank(array, result, self.size, "array")
        call = self._call(Collective.REDUCE_SCATTER, result, dtype, op, result.nbytes * self.size)
        spaces: dict[int, Blocks] = {Space.INPUT: blocks, Space.OUTPUT: Blocks.of_one(result, self.size)}
        copies = spaces[Space.OUTPUT].copies(0, blocks.whole(0)) if self.size == 1 else ()
        return self._begin(call, spaces, out, at_end, async_op, copies)

    def all_to_all(
        self,
        out: Array | Sequence[Array],
        array: Array | Sequence[Array],
        *,
        out_splits: Sequence[int] | None = None,
        in_splits: Sequence[int] | None = None,
        dtype: DType | None = None,
        async_op: bool = False,
    ) -> Work:
        """Send part t of `array` to rank t; receive part s of `out` from rank s.

        `in_splits` and `out_splits` are the sizes of the parts in elements; without them the parts are equal. Lists
        contain one array per rank.
        """
        given, _, first = parts(array, in_splits, self.size, "in_splits")
        result, at_end, _ = parts(out, out_splits, self.size, "out_splits")
        check_apart(out)
        call = self._call(Collective.ALL_TO_ALL, first, dtype, Op.SUM, INLINE + 1, count=0)
        if given.length(self.rank) != result.length(self.rank):
            raise UnsupportedError("this rank's own part differs in size between `array` and `out`")
        copies = result.copies(self.rank, given.whole(self.rank))
        spaces: dict[int, Blocks] = {Space.INPUT: given, Space.OUTPUT: result}
        return self._begin(call, spaces, out, at_end, async_op, copies)

    def gather(
        self,
        array: Array,
        out: Array | Sequence[Array] | None,
        root: int,
        *,
        dtype: DType | None = None,
        async_op: bool = False,
    ) -> Work:
        """Collect the arrays of all ranks at `root`; other ranks ignore `out`."""
        self._check_rank(root, "root")
        given, _ = contiguous(array)
        call = self._call(Collective.GATHER, given, dtype, Op.SUM, given.nbytes, root)
        at_end = None
        copies: Copies = ()
        spaces: dict[int, Blocks] = {Space.INPUT: Blocks.of_one(given, 1)}
        if self.rank == root:
            if out is None:
                raise UnsupportedError("out: the root of a gather requires it")
            blocks, at_end = per_rank(out, given, self.size, "out")
            check_apart(out)
            copies = blocks.copies(root, bytes_of(given))
            spaces[Space.OUTPUT] = blocks
        return self._begin(call, spaces, out, at_end, async_op, copies)

    def scatter(
        self,
        out: Array,
        array: Array | Sequence[Array] | None,
        root: int,
        *,
        dtype: DType | None = None,
        async_op: bool = False,
    ) -> Work:
        """Send part r of the root's `array` to rank r; other ranks ignore `array`."""
        self._check_rank(root, "root")
        result, at_end = contiguous(out, True)
        call = self._call(Collective.SCATTER, result, dtype, Op.SUM, result.nbytes, root)
        copies: Copies = ()
        spaces: dict[int, Blocks] = {Space.OUTPUT: Blocks.of_one(result, 1)}
        if self.rank == root:
            if array is None:
                raise UnsupportedError("array: the root of a scatter requires it")
            blocks, _ = per_rank(array, result, self.size, "array")
            copies = spaces[Space.OUTPUT].copies(0, blocks.whole(root))
            spaces[Space.INPUT] = blocks
        return self._begin(call, spaces, out, at_end, async_op, copies)

    def barrier(self, *, async_op: bool = False) -> Work:
        """Wait until all ranks have called it."""
        nothing = np.zeros(0, np.uint8)
        call = self._call(Collective.BARRIER, nothing, None, Op.SUM, 0)
        spaces = _both(nothing, nothing, [0, 0])
        if call.algorithm == CollectiveAlgorithm.WHOLE:
            spaces[Space.SCRATCH] = Blocks.of_flat(nothing, [0] * (self.size + 1))
        return self._begin(call, spaces, None, None, async_op)

    def send(self, array: Array, to: int, tag: int = 0, *, async_op: bool = False) -> Work:
        """Send an array to rank `to`, which receives with the same tag (0..4294967295)."""
        self._check_peer(to, tag)
        given, _ = contiguous(array)
        work = Work(self._executor.progress.wait)
        self._executor.send(Transfer(0, to, tag, Blocks.of_one(given, 1), work))
        return self._awaited(work, async_op)

    def recv(self, array: Array, source: int | None = None, tag: int = 0, *, async_op: bool = False) -> Work:
        """Receive an array of the same size from `source`; None accepts any rank, which `work.source` then gives."""
        if source is not None:
            self._check_peer(source, tag)
        result, at_end = contiguous(array, True)
        work = Work(self._executor.progress.wait, array)
        peer = ANY_SOURCE if source is None else source
        self._executor.receive(Transfer(0, peer, tag, Blocks.of_one(result, 1), work, at_end, "receive"))
        return self._awaited(work, async_op)

    # Small collectives on memory given by its address

    def small_plan(
        self, collective: Collective, dtype: DType, count: int, op: Op = Op.SUM, root: int = 0
    ) -> SmallPlan | None:
        """Return the plan of a small collective, to be used for any number of calls; None if it is not a small one.

        `count` is the number of elements of the smaller of input and output. Errors as of the collective.
        """
        op, root = op if collective in REDUCING else Op.SUM, root if collective in ROOTED else 0
        check(op, dtype)
        self._check_rank(root, "root")
        part = count * NUMPY[dtype].itemsize
        size = part * self.size if collective == Collective.REDUCE_SCATTER else part
        if self._compares_results or not 0 < size <= INLINE:
            return None
        if collective == Collective.ALL_TO_ALL:
            size = INLINE + 1  # never inline: sizes may differ by pair of ranks
        algorithm = choose(collective, self.size, size, INLINE)
        program = program_for(collective, algorithm, self.size, self.rank, root)
        if not is_flat(collective, program):
            return None
        announced = 0 if collective == Collective.ALL_TO_ALL else count
        call = Call(collective, algorithm, op, dtype, announced, root, is_inline=size <= INLINE)
        if self._scratch_of_small is None:
            self._scratch_of_small = scratch_for(self.size)
        return SmallPlan(call, program, self.rank, self.size, part, self._scratch_of_small)

    def run_small(self, plan: SmallPlan, given: int, out: int, kept: Any, async_op: bool = False) -> Work:
        """Execute a small collective on contiguous memory at two addresses, which `kept` keeps alive."""
        work = Work(self._executor.progress.wait)
        self._executor.begin_small(plan, given, out, kept, work)
        return self._awaited(work, async_op)

    def hold(self, wait: Callable[[], None]) -> None:
        """Let later collectives start only when `wait()` has returned; they are accepted at once, in order.

        A thread of the group calls `wait`, for inputs that something else is still writing. An error that it raises
        ends the group.
        """
        self._executor.hold(wait)

    # Observation

    @property
    def recorder(self) -> FlightRecorder:
        """The flight recorder of this rank."""
        return self._executor.recorder

    def step(self, number: int) -> None:
        """Mark the start of a training step; the recorder stores the number with each collective."""
        self._executor.recorder.step = number

    @property
    def sequence(self) -> int:
        """The number of collectives that this rank has called."""
        return self._executor.collectives.sequence

    def set_timeout(self, seconds: float) -> None:
        """Set the timeout (s) of unfinished and later collectives."""
        self.timeout = self._executor.health.timeout = seconds

    def refuse(self, reason: str) -> None:
        """Report to the other ranks that this rank's next collective is an invalid call.

        For layers that check arguments before they call the group. Ranks that call the collective get a MismatchError
        with `reason`; if all ranks refuse it, the group stays usable.
        """
        self._executor.refuse(reason)

    # Shutdown

    @property
    def error(self) -> CollectiveError | None:
        """The error that ended the group; None while it is usable."""
        return self._executor.error

    def abort(self, reason: str = "abort was called") -> None:
        """End all operations in progress with an AbortedError, here and at all ranks; call `close` afterwards."""
        self._executor.abort(reason)

    def close(self) -> None:
        """Wait until the other ranks have what this rank sent, up to 2 s for them to leave too; free all resources."""
        self._executor.close()
        self._spare.clear()
        if self._store is not None:
            self._store.close()

    def __enter__(self) -> Group:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is not None:
            self.abort("interrupted" if isinstance(error, KeyboardInterrupt) else repr(error))
        self.close()

    # Internals

    def _call(
        self,
        collective: Collective,
        array: Array,
        dtype: DType | None,
        op: Op,
        size: int,
        root: int = 0,
        count: int | None = None,
    ) -> Call:
        kind = dtype_of(array, dtype)
        if collective in REDUCING:
            check(op, kind)
        algorithm = choose(collective, self.size, size, INLINE)
        elements = array.size if count is None else count
        return Call(collective, algorithm, op, kind, elements, root, is_inline=size <= INLINE)

    def _begin(
        self,
        call: Call,
        spaces: dict[int, Blocks],
        result: Any,
        at_end: Callable[[], None] | None,
        async_op: bool,
        copies: Copies = (),
        first: Copies = (),
    ) -> Work:
        program = program_for(call.collective, call.algorithm, self.size, self.rank, call.root)
        if program.scratch and Space.SCRATCH not in spaces:
            spaces[Space.SCRATCH], at_end = self._scratch(program.scratch, spaces, at_end)
        work = Work(self._executor.progress.wait, result)
        data = CollectiveData(program, spaces, at_end, copies, first)
        if self._compares_results and call.collective in _EQUAL_RESULTS:
            with self._executor.progress.lock:  # no other call comes between
                self._executor.begin(call, data, Work(self._executor.progress.wait))
                self._begin_comparison(call, spaces[Space.OUTPUT], work)
        else:
            self._executor.begin(call, data, work)
        return self._awaited(work, async_op)

    def _begin_comparison(self, call: Call, result: Blocks, work: Work) -> None:
        """Gather the checksums of a result, which is there when this begins; `work` ends with the comparison."""
        sums = np.zeros(self.size, np.uint32)
        blocks = Blocks.of_equal(sums, self.size)

        def own() -> Iterator[tuple[Bytes, Bytes]]:
            yield blocks.whole(self.rank), bytes_of(np.array([result.checksum()], np.uint32))

        def compare() -> None:
            if (sums != sums[0]).any():
                each = ", ".join(f"{value:08x} at rank {rank}" for rank, value in enumerate(sums.tolist()))
                raise CollectiveMismatchError(f"{call.describe()}: the results differ, their checksums are {each}")

        gather = self._call(Collective.ALL_GATHER, sums[:1], None, Op.SUM, sums.itemsize)
        program = program_for(gather.collective, gather.algorithm, self.size, self.rank, gather.root)
        data = CollectiveData(program, {Space.OUTPUT: blocks}, compare, first=own())
        self._executor.begin(gather, data, work)

    def _awaited(self, work: Work, async_op: bool) -> Work:
        if async_op:
            self._executor.progress.work_in_background()
        else:
            work.wait()
        return work

    def _scratch(
        self, blocks: tuple[int, ...], spaces: dict[int, Blocks], at_end: Callable[[], None] | None
    ) -> tuple[Blocks, Callable[[], None]]:
        """Return memory for blocks like those of the input, and what then is to be done at the end."""
        like = spaces[Space.INPUT]
        bounds = np.cumsum([0, *(like.length(block) if block in blocks else 0 for block in range(max(blocks) + 1))])
        memory = self._spare.take(int(bounds[-1]))

        def end() -> None:
            if at_end is not None:
                at_end()
            self._spare.give_back(memory)

        return Blocks.of_flat(memory, bounds.tolist()), end

    def _prepare_whole(
        self, call: Call, given: Array, result: Array, spaces: dict[int, Blocks], at_end: Callable[[], None] | None
    ) -> Callable[[], None]:
        """Allocate SCRATCH for the inputs of all ranks; return the function that reduces them in rank order."""
        kind = NUMPY[call.dtype]
        inputs = np.empty((self.size, given.size), given.dtype)
        spaces[Space.SCRATCH] = Blocks.of_equal(inputs, self.size)
        fold = fold_of(call.op, call.dtype)

        def fold_all() -> None:
            inputs[self.rank] = given.reshape(-1)
            flat = result.reshape(-1).view(kind)
            flat[:] = inputs[0]
            for each in inputs[1:]:
                fold(flat, each, flat)
            if call.op == Op.AVG:
                divide(flat, call.dtype, self.size)
            if at_end is not None:
                at_end()

        return fold_all

    def _check_rank(self, rank: int, name: str) -> None:
        if not 0 <= rank < self.size:
            raise UnsupportedError(f"{name}: rank {rank} is not in 0..{self.size - 1}")

    def _check_peer(self, rank: int, tag: int) -> None:
        self._check_rank(rank, "peer")
        if rank == self.rank:
            raise UnsupportedError(f"peer: rank {rank} is this rank")
        if not 0 <= tag <= LARGEST_TAG:
            raise UnsupportedError(f"tag: {tag} is not in 0..{LARGEST_TAG}")


def _both(given: Array, result: Array, bounds: Sequence[int]) -> dict[int, Blocks]:
    """Return the spaces of a collective whose input and output are cut alike."""
    return {Space.INPUT: Blocks.of_flat(given, bounds), Space.OUTPUT: Blocks.of_flat(result, bounds)}
