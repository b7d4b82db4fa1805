"""The collectives that torch calls, with its names and arguments, on top of a `Group`."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from openmrc.collectives.choice import Collective
from openmrc.train.errors import UnsupportedError
from openmrc.train.execution.work import Work
from openmrc.train.group import Group
from openmrc.train.links.frames import REDUCING, ROOTED
from openmrc.train.pytorch import sparse
from openmrc.train.pytorch.barriers import monitored
from openmrc.train.pytorch.compiling import untraced
from openmrc.train.pytorch.small import SmallCalls
from openmrc.train.pytorch.staging import Staging
from openmrc.train.pytorch.tensors import Given, arrays_of, is_premultiplied, moved, op_of, reduced, scaled
from openmrc.train.pytorch.works import FutureThreads, MrcWork, recorded

P = ParamSpec("P")
T = TypeVar("T")
Begin = Callable[..., Work]  # a call of the group, but for `async_op`


def refusing(method: Callable[Concatenate[Collectives, P], T]) -> Callable[Concatenate[Collectives, P], T]:
    """Decorate a collective: report an invalid call to the other ranks, so that they do not wait for it."""

    def call(self: Collectives, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(self, *args, **kwargs)
        except UnsupportedError as error:
            if not self.is_on_host:  # else the caller reports it
                self.group.refuse(str(error))
            raise

    functools.update_wrapper(call, method)
    return call


def staged(method: Callable[..., MrcWork], *, is_one: bool = False) -> Callable[..., MrcWork]:
    """Decorate a collective: pass tensors on a device through the host.

    Its first two arguments are outputs and inputs, or with `is_one` the first is both, in pieces if it is large.
    """

    @functools.wraps(method)
    def call(self: Collectives, outputs: Any, *rest: Any, **options: Any) -> MrcWork:
        given = outputs if is_one else (outputs, rest[0])
        if not self.staging.takes(given):
            return method(self, outputs, *rest, **options)
        if self._coalesced is not None:
            raise UnsupportedError("coalescing: only for CPU tensors")
        if is_one:
            tensors = _listed(outputs)

            def start(host: Any, _: Any) -> MrcWork:
                return method(self.on_host, host, *rest, **options)

            return self.staging.start(start, tensors, tensors, self.futures, in_pieces=True)
        inputs, *others = rest

        def begin(host_outputs: Any, host_inputs: Any) -> MrcWork:
            return method(self.on_host, host_outputs, host_inputs, *others, **options)

        return self.staging.start(begin, outputs, inputs, self.futures)

    return call


staged_in_place = functools.partial(staged, is_one=True)


@untraced
class Collectives:
    """The methods that torch calls on a backend."""

    group: Group

    def __init__(self, group: Group, staging: Staging | None = None, *, is_on_host: bool = False) -> None:
        """`is_on_host`: for the staged calls of another one, which are all asynchronous."""
        self.group = group
        self.is_on_host = is_on_host
        self.staging = staging or Staging(group)
        self.on_host = self if is_on_host else Collectives(group, self.staging, is_on_host=True)
        self.futures = FutureThreads()
        self._small = SmallCalls(group)
        self._coalesced: list[Work] | None = None  # works since `start_coalescing`; None: not coalescing

    # Reductions

    @recorded("all_reduce")
    def allreduce(self, tensors: Any, opts: Any = None) -> MrcWork:
        work = self._begin_small(Collective.ALL_REDUCE, tensors, tensors, opts)
        return work or self._all_reduce_each(tensors, opts)

    @refusing
    @staged_in_place
    def _all_reduce_each(self, tensors: Any, opts: Any) -> MrcWork:
        tensors = _listed(tensors)
        opts = _reduce_options(opts, dist.AllreduceOptions)
        if all(getattr(tensor, "is_sparse", False) for tensor in tensors):
            return self._sparse(tensors, opts)
        return self._run([self._all_reduce(tensor, opts) for tensor in tensors], tensors, opts)

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> MrcWork:
        """Combine several tensors in place at all ranks."""
        return self.allreduce(tensors, opts or dist.AllreduceCoalescedOptions())

    @recorded("reduce")
    def reduce(self, tensors: Any, opts: Any = None) -> MrcWork:
        work = self._begin_small(Collective.REDUCE, tensors, tensors, opts)
        return work or self._reduce_each(tensors, opts)

    @refusing
    @staged_in_place
    def _reduce_each(self, tensors: Any, opts: Any) -> MrcWork:
        tensors = _listed(tensors)
        opts = opts or dist.ReduceOptions()
        return self._run([self._reduce(tensor, opts) for tensor in tensors], tensors, opts)

    @recorded("reduce_scatter")
    @refusing
    @staged
    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> MrcWork:
        """Combine part r of every rank's list at rank r."""
        outputs, inputs = _paired(outputs, inputs)
        opts = opts or dist.ReduceScatterOptions()
        begins = [self._reduce_scatter(out, parts, opts) for out, parts in zip(outputs, inputs, strict=True)]
        return self._run(begins, outputs, opts)

    @recorded("reduce_scatter")
    def reduce_scatter_single(self, output: Any, tensor: Any, opts: Any = None) -> MrcWork:
        """Combine part r of every rank's tensor at rank r."""
        work = self._begin_small(Collective.REDUCE_SCATTER, tensor, output, opts)
        return work or self.reduce_scatter_single_coalesced([output], [tensor], opts)

    @refusing
    @staged
    def reduce_scatter_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> MrcWork:
        """Start several `reduce_scatter_single` calls as one work."""
        opts = opts or dist.ReduceScatterOptions()
        begins = [self._reduce_scatter(out, given, opts) for out, given in zip(outputs, inputs, strict=True)]
        return self._run(begins, outputs, opts)

    # Moving data

    @recorded("broadcast")
    def broadcast(self, tensors: Any, opts: Any = None) -> MrcWork:
        work = self._begin_small(Collective.BROADCAST, tensors, tensors, opts)
        return work or self._broadcast_each(tensors, opts)

    @refusing
    @staged_in_place
    def _broadcast_each(self, tensors: Any, opts: Any) -> MrcWork:
        tensors = _listed(tensors)
        if isinstance(opts, int):
            opts, root = dist.BroadcastOptions(), opts
            opts.rootRank = root
        opts = opts or dist.BroadcastOptions()
        return self._run([self._broadcast(tensor, opts.rootRank) for tensor in tensors], tensors, opts)

    @recorded("all_gather")
    @refusing
    @staged
    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> MrcWork:
        """Collect the tensors of all ranks at every rank, as lists."""
        outputs, inputs = _paired(outputs, inputs)
        each = (self._all_gather_list(out, given) for out, given in zip(outputs, inputs, strict=True))
        begins = [*itertools.chain.from_iterable(each)]
        return self._run(begins, outputs[0] if len(outputs) == 1 else outputs, opts or c10d.AllgatherOptions())

    @recorded("all_gather")
    @refusing
    @staged
    def allgather_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> MrcWork:
        """Start several `allgather` calls as one work; `outputs` has one list per rank."""
        lists = [list(each) for each in zip(*outputs, strict=True)]
        begins = [self._all_gather(out, given) for out, given in zip(lists, inputs, strict=True)]
        return self._run(begins, outputs, opts or c10d.AllgatherOptions())

    @recorded("all_gather")
    def all_gather_single(self, output: Any, tensor: Any, opts: Any = None) -> MrcWork:
        """Collect the tensors of all ranks at every rank, as one tensor."""
        work = self._begin_small(Collective.ALL_GATHER, tensor, output, opts)
        return work or self.all_gather_single_coalesced([output], [tensor], opts)

    @refusing
    @staged
    def all_gather_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> MrcWork:
        """Start several `all_gather_single` calls as one work."""
        begins = [self._all_gather(out, given) for out, given in zip(outputs, inputs, strict=True)]
        return self._run(begins, outputs, opts or c10d.AllgatherOptions())

    @recorded("gather")
    @refusing
    @staged
    def gather(self, outputs: Any, inputs: Any, opts: Any = None) -> MrcWork:
        opts = opts or dist.GatherOptions()
        given = moved(_listed(inputs)[0])
        out = arrays_of(outputs[0]) if outputs else None
        begin = functools.partial(self.group.gather, given.array, out, opts.rootRank, dtype=given.dtype)
        return self._run([begin], outputs, opts)

    @recorded("scatter")
    @refusing
    @staged
    def scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> MrcWork:
        """Send part r of the root's list to rank r."""
        opts = opts or dist.ScatterOptions()
        out = moved(_listed(outputs)[0])
        given = arrays_of(inputs[0]) if inputs else None
        begin = functools.partial(self.group.scatter, out.array, given, opts.rootRank, dtype=out.dtype)
        return self._run([begin], outputs, opts)

    @recorded("all_to_all")
    @refusing
    @staged
    def alltoall(self, outputs: Any, inputs: Any, opts: Any = None) -> MrcWork:
        """Send tensor t of the list to rank t."""
        dtype = moved(inputs[0]).dtype
        begin = functools.partial(self.group.all_to_all, arrays_of(outputs), arrays_of(inputs), dtype=dtype)
        return self._run([begin], outputs, opts or dist.AllToAllOptions())

    @recorded("all_to_all")
    def all_to_all_single(
        self, output: Any, tensor: Any, output_splits: Any = (), input_splits: Any = (), opts: Any = None
    ) -> MrcWork:
        """Send part t of the tensor to rank t; splits count rows, empty splits mean equal parts."""
        if not (output_splits or input_splits):
            work = self._begin_small(Collective.ALL_TO_ALL, tensor, output, opts)
            if work is not None:
                return work
        return self._all_to_all(output, tensor, output_splits, input_splits, opts)

    @refusing
    @staged
    def _all_to_all(self, output: Any, tensor: Any, output_splits: Any, input_splits: Any, opts: Any) -> MrcWork:
        out, given = moved(output), moved(tensor)
        out_splits, in_splits = _elements(output_splits, out.array), _elements(input_splits, given.array)
        begin = functools.partial(
            self.group.all_to_all, out.array, given.array, out_splits=out_splits, in_splits=in_splits, dtype=given.dtype
        )
        return self._run([begin], [output], opts or dist.AllToAllOptions())

    # Barriers, sends and receives

    @recorded("barrier")
    @refusing
    def barrier(self, opts: Any = None) -> MrcWork:
        opts = opts if opts is not None and hasattr(opts, "asyncOp") else dist.BarrierOptions()
        return self._run([self.group.barrier], [], opts)

    def monitored_barrier(self, opts: Any = None, wait_all_ranks: bool = False) -> None:
        """Wait for all ranks; rank 0 raises CollectiveTimeoutError naming ranks missing after the timeout."""
        seconds = getattr(opts, "timeout", opts)
        monitored(self.group, self.group.timeout if seconds is None else seconds.total_seconds(), wait_all_ranks)

    @recorded("send")
    def send(self, tensors: Any, to: int, tag: int = 0) -> MrcWork:
        if self.staging.takes(tensors):
            return self.staging.send(lambda host: self.on_host.send(host, to, tag), tensors, self.futures)
        return self._transferred(self.group.send(moved(tensors[0]).array, to, tag, async_op=True), tensors)

    @recorded("recv")
    def recv(self, tensors: Any, source: int, tag: int = 0) -> MrcWork:
        if self.staging.takes(tensors):
            return self.staging.receive(lambda host: self.on_host.recv(host, source, tag), tensors, self.futures)
        return self._transferred(self.group.recv(moved(tensors[0]).array, source, tag, async_op=True), tensors)

    @recorded("recv_anysource")
    def recv_anysource(self, tensors: Any, tag: int = 0) -> MrcWork:
        """Receive a tensor from whichever rank sends first."""
        if self.staging.takes(tensors):
            return self.staging.receive(lambda host: self.on_host.recv_anysource(host, tag), tensors, self.futures)
        return self._transferred(self.group.recv(moved(tensors[0]).array, None, tag, async_op=True), tensors)

    # Names in older and newer versions of torch

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = recorded("all_gather")(all_gather_single_coalesced)
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = recorded("reduce_scatter")(reduce_scatter_single_coalesced)
    alltoall_base = all_to_all_single

    # Coalescing

    def start_coalescing(self) -> None:
        self._coalesced = []

    def end_coalescing(self) -> MrcWork:
        """Return one work for all calls since `start_coalescing`."""
        works, self._coalesced = self._coalesced or [], None
        return MrcWork(works, [], self.futures, None)

    # Internals

    def _begin_small(self, kind: Collective, given: Any, out: Any, opts: Any) -> MrcWork | None:
        """Start a small collective of one tensor, or of a list of one; None if it has to go the general way."""
        if self._coalesced is not None or not hasattr(opts, "timeout"):
            return None
        if isinstance(given, list):
            if len(given) != 1:
                return None
            given, out = given[0], out[0]
        seconds = opts.timeout.total_seconds()
        is_async = self.is_on_host or opts.asyncOp or seconds > 0
        op = opts.reduceOp if kind in REDUCING else None
        root = opts.rootRank if kind in ROOTED else 0
        work = self._small.begin(kind, given, out, op=op, root=root, is_async=is_async)
        return None if work is None else MrcWork([work], [out], self.futures, seconds if seconds > 0 else None)

    def _run(self, begins: Sequence[Begin], tensors: Any, opts: Any) -> MrcWork:
        """Start all calls; wait for the last one here if torch waits immediately afterwards."""
        is_async = self.is_on_host or opts.asyncOp or self._coalesced is not None or opts.timeout.total_seconds() > 0
        works = [begin(async_op=True) for begin in begins[:-1]]
        works += [begin(async_op=is_async) for begin in begins[-1:]]
        if self._coalesced is not None:
            self._coalesced += works
        seconds = opts.timeout.total_seconds()
        return MrcWork(works, tensors, self.futures, seconds if seconds > 0 else None)

    def _transferred(self, work: Work, tensors: Any) -> MrcWork:
        if self._coalesced is not None:
            self._coalesced.append(work)
        return MrcWork([work], tensors, self.futures, None)

    def _sparse(self, tensors: list[Any], opts: Any) -> MrcWork:
        for tensor in tensors:
            if tensor.device.type != "cpu":
                raise UnsupportedError(
                    f"device: the tensor is on {tensor.device}; backend mrc supports only CPU tensors"
                )
            sparse.all_reduce(self.group, tensor, op_of(opts.reduceOp, tensor))
        return MrcWork([], tensors, self.futures, None)

    def _scaled(self, tensor: Any, op: Any, *, in_place: bool) -> Any:
        result = scaled(tensor, op, in_place=in_place)
        if self.is_on_host and is_premultiplied(op):
            raise UnsupportedError("op: PREMUL_SUM is for CPU tensors")
        return result

    def _all_reduce(self, tensor: Any, opts: Any) -> Begin:
        given, op = reduced(self._scaled(tensor, opts.reduceOp, in_place=True)), op_of(opts.reduceOp, tensor)
        return functools.partial(self.group.all_reduce, given.array, op, dtype=given.dtype)

    def _reduce(self, tensor: Any, opts: Any) -> Begin:
        is_root = opts.rootRank == self.group.rank
        given, op = reduced(self._scaled(tensor, opts.reduceOp, in_place=is_root)), op_of(opts.reduceOp, tensor)
        return functools.partial(self.group.reduce, given.array, opts.rootRank, op, dtype=given.dtype)

    def _broadcast(self, tensor: Any, root: int) -> Begin:
        given = moved(tensor)
        return functools.partial(self.group.broadcast, given.array, root, dtype=given.dtype)

    def _all_gather(self, output: Any, tensor: Any) -> Begin:
        given = moved(tensor)
        out: Any = moved(output).array if not isinstance(output, list | tuple) else arrays_of(output)
        return functools.partial(self.group.all_gather, out, given.array, dtype=given.dtype)

    def _all_gather_list(self, outputs: Any, tensor: Any) -> list[Begin]:
        """Return the calls of an all-gather into a list: if sizes differ, a broadcast from each rank, as NCCL does."""
        if len(outputs) != self.group.size or len({out.numel() for out in outputs}) == 1:
            return [self._all_gather(outputs, tensor)]
        own = outputs[self.group.rank]
        if own.numel() != tensor.numel() or own.dtype != tensor.dtype:
            raise UnsupportedError(
                f"out: {own.numel()} elements of {own.dtype} for this rank, which sends "
                f"{tensor.numel()} of {tensor.dtype}"
            )
        own.detach().copy_(tensor.detach().reshape(own.shape))
        return [self._broadcast(out, root) for root, out in enumerate(outputs)]

    def _reduce_scatter(self, output: Any, given: Any, opts: Any) -> Begin:
        out: Given = reduced(output)
        op = op_of(opts.reduceOp, output)
        if isinstance(given, list | tuple):
            array: Any = arrays_of([self._scaled(each, opts.reduceOp, in_place=False) for each in given])
        else:
            array = reduced(self._scaled(given, opts.reduceOp, in_place=False)).array
        return functools.partial(self.group.reduce_scatter, out.array, array, op, dtype=out.dtype)


def _listed(tensors: Any) -> list[Any]:
    return list(tensors) if isinstance(tensors, list | tuple) else [tensors]


def _paired(first: Any, second: Any) -> tuple[list[Any], list[Any]]:
    """Return a list of tensors and a list of lists with equal lengths; either may be passed as a single element."""
    first, second = _listed(first), _listed(second)
    if len(first) != len(second):  # one tensor, and the list for it
        first = first if len(first) == 1 else [first]
        second = second if len(second) == 1 else [second]
    return first, second


def _reduce_options(opts: Any, kind: Any) -> Any:
    """Return options; `opts` may be options, only an operation, or None."""
    if opts is not None and hasattr(opts, "reduceOp"):
        return opts
    options = kind()
    if opts is not None:
        options.reduceOp = opts
    return options


def _elements(splits: Any, array: Any) -> list[int] | None:
    """Convert splits from rows of the first dimension, which torch counts, to elements; None if empty."""
    if not len(splits):
        return None
    row = array[:1].size if len(array) else 0
    return [int(each) * row for each in splits]
