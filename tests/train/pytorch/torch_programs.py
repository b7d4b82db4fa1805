"""What the rank processes of `test_torch_backend` run; the default process group is there already."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

from harness.free_port import free_port
from openmrc.train.errors import TrainError
from openmrc.train.links.mesh import Timers
from openmrc.train.torch_backend import Options, group_of
from tests.train.pytorch.torch_ranks import memfds, threads, udp_sockets

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def ours() -> tuple[int, int]:
    return dist.get_rank(), dist.get_world_size()


def reduces_all_types() -> None:
    rank, size = ours()
    for dtype in (*INTEGERS, *FLOATS, torch.complex64):
        for count in (0, 7, 40_000):
            tensor = torch.full((count,), rank + 1, dtype=dtype)
            dist.all_reduce(tensor)
            assert torch.equal(tensor, torch.full((count,), size * (size + 1) // 2, dtype=dtype)), dtype
    for op, expected in ((dist.ReduceOp.MAX, size), (dist.ReduceOp.MIN, 1), (dist.ReduceOp.AVG, (size + 1) / 2)):
        tensor = torch.full((3, 5), float(rank + 1))
        dist.all_reduce(tensor, op)
        assert (tensor == expected).all(), op
    flags = torch.tensor([rank == 0, True, False])
    dist.all_reduce(flags, dist.ReduceOp.BAND)
    assert flags.tolist() == [size == 1, True, False]


def adds_sparse_tensors() -> None:
    rank, size = ours()
    for dtype in (torch.float32, torch.bfloat16):
        dense = torch.zeros(6, 2, dtype=dtype)
        dense[rank] = 1
        dense[5] = rank
        tensor = dense.to_sparse(1)
        dist.all_reduce(tensor)
        expected = torch.zeros(6, 2, dtype=dtype)
        expected[:size] = 1
        expected[5] += sum(range(size))
        assert torch.equal(tensor.to_dense(), expected)
    embedding = DistributedDataParallel(nn.Embedding(10, 4, sparse=True))
    embedding(torch.tensor([rank, 9])).sum().backward()
    gradient = embedding.module.weight.grad.to_dense()
    assert gradient[: size + 1, 0].tolist() == pytest.approx([1 / size] * size + [0])
    assert gradient[9, 0] == 1


def moves_tensors() -> None:
    rank, size = ours()
    tensor = torch.arange(10).reshape(2, 5).t() * (rank + 1)  # not contiguous
    dist.broadcast(tensor, 1)
    assert torch.equal(tensor, torch.arange(10).reshape(2, 5).t() * 2)
    outs = [torch.zeros(4, dtype=torch.bfloat16) for _ in range(size)]
    dist.all_gather(outs, torch.full((4,), rank, dtype=torch.bfloat16))
    assert [each[0].item() for each in outs] == list(range(size))
    parts = [torch.zeros(each, 2) for each in range(size)]  # uneven, one of no elements, as NCCL takes them
    dist.all_gather(parts, torch.full((rank, 2), float(rank)))
    assert [each.tolist() for each in parts] == [[[float(each)] * 2] * each for each in range(size)]
    out = torch.zeros(size * 3, dtype=torch.complex64)
    dist.all_gather_into_tensor(out, torch.full((3,), complex(rank, 1)))
    assert out[::3].tolist() == [complex(each, 1) for each in range(size)]
    part = torch.zeros(5)
    dist.reduce_scatter_tensor(part, torch.arange(5 * size, dtype=torch.float32))
    assert torch.equal(part, torch.arange(5 * rank, 5 * rank + 5) * float(size))
    dist.reduce_scatter(part, [torch.full((5,), float(each)) for each in range(size)], dist.ReduceOp.AVG)
    assert (part == rank).all()
    out = torch.zeros(size, 2, dtype=torch.float8_e4m3fn)
    dist.all_to_all_single(out, torch.full((size, 2), rank).to(torch.float8_e4m3fn))
    assert out[:, 0].to(torch.float32).tolist() == [float(each) for each in range(size)]


def moves_uneven_parts() -> None:
    rank, size = ours()
    splits = [each + 1 for each in range(size)]  # rows to rank `each`
    given = torch.full((sum(splits), 3), float(rank))
    out = torch.zeros((rank + 1) * size, 3)
    dist.all_to_all_single(out, given, [rank + 1] * size, splits)
    assert out[:, 0].tolist() == [float(each) for each in range(size) for _ in range(rank + 1)]
    taken = [each for each in range(size) if each % 2]  # the other ranks are sent nothing
    out = torch.full((size if rank in taken else 0,), -1.0)
    dist.all_to_all_single(out, torch.full((len(taken),), float(rank)), [rank % 2] * size, [n % 2 for n in range(size)])
    assert out.tolist() == (list(range(size)) if rank in taken else [])
    outs = [torch.zeros(rank + 1) for _ in range(size)]
    dist.all_to_all(outs, [torch.full((each + 1,), float(rank)) for each in range(size)])
    assert [each[0].item() for each in outs] == list(range(size))


def reduces_views() -> None:
    rank, size = ours()
    for count in (4, 50_000):
        whole = torch.full((2 * count,), float(rank))
        dist.all_reduce(whole[::2])  # Gloo takes the elements between for the view's
        assert (whole[::2] == sum(range(size))).all()
        assert (whole[1::2] == rank).all()
        part = torch.full((count,), float(rank + 1))[1:-1]
        dist.reduce(part, 0)
        assert (part == (size * (size + 1) / 2 if rank == 0 else rank + 1)).all()
    scalar = torch.tensor(rank + 1.0)
    dist.all_reduce(scalar)
    assert scalar == size * (size + 1) / 2
    parameter = nn.Parameter(torch.full((3,), float(rank)))
    dist.broadcast(parameter, 1)
    assert parameter.tolist() == [1.0] * 3


def serves_many_threads() -> None:
    rank, size = ours()
    tensors = [torch.full((1 + n % 7 * 3000,), float(n + rank)) for n in range(100)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]

    def exchange(n: int) -> float:
        works[n].wait()
        given, out = torch.full((1 + 300 * n,), float(rank)), torch.empty(1 + 300 * n)
        pair = dist.isend(given, (rank + 1) % size, tag=n), dist.irecv(out, (rank - 1) % size, tag=n)
        for work in pair:
            work.wait()
        return float(out.max())

    with ThreadPoolExecutor(len(tensors)) as threads:
        assert set(threads.map(exchange, range(len(tensors)))) == {(rank - 1) % size}
    assert [tensor[0].item() for tensor in tensors] == [size * n + sum(range(size)) for n in range(len(tensors))]


def gathers_and_scatters() -> None:
    rank, size = ours()
    outs = [torch.zeros(3) for _ in range(size)] if rank == 1 else None
    dist.gather(torch.full((3,), float(rank)), outs, dst=1)
    assert outs is None or [each[0].item() for each in outs] == list(range(size))
    out = torch.zeros(2)
    dist.scatter(out, [torch.full((2,), float(each)) for each in range(size)] if rank == 0 else None, src=0)
    assert (out == rank).all()
    tensor = torch.full((2,), float(rank))
    dist.reduce(tensor, dst=1)
    assert rank != 1 or (tensor == sum(range(size))).all()


def sends_and_receives() -> None:
    rank, size = ours()
    after, before = (rank + 1) % size, (rank - 1) % size
    for count in (3, 100_000):
        out = torch.zeros(count)
        ops = [
            dist.P2POp(dist.isend, torch.full((count,), float(rank)), after),
            dist.P2POp(dist.irecv, out, before),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        assert (out == before).all()
    if rank:
        dist.send(torch.full((4,), float(rank)), 0, tag=(1 << 31) - 1)
    else:
        tensor = torch.zeros(4)
        sources = {dist.recv(tensor, tag=(1 << 31) - 1) for _ in range(size - 1)}
        assert sources == set(range(1, size))


def passes_objects() -> None:
    rank, size = ours()
    objects: list[Any] = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": each} for each in range(size)]
    mine = ["zero", 0] if rank == 0 else [None, None]
    dist.broadcast_object_list(mine, src=0)
    assert mine == ["zero", 0]
    gathered: list[Any] | None = [None] * size if rank == 0 else None
    dist.gather_object(rank, gathered, dst=0)
    assert gathered in (None, list(range(size)))


def sums_among_its_own() -> list[int]:
    """Sum numbers that no other job has, many times; return the processes of this job."""
    processes: list[int] = [0] * ours()[1]
    dist.all_gather_object(processes, os.getpid())
    for count in (7, 300_000) * 10:
        tensor = torch.full((count,), os.getpid(), dtype=torch.int64)
        dist.all_reduce(tensor)
        assert torch.equal(tensor, torch.full((count,), sum(processes))), "another job's data"
    return processes


def coalesces() -> None:
    rank, size = ours()
    tensors = [torch.full((each + 1,), float(rank)) for each in range(3)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    assert all((each == sum(range(size))).all() for each in tensors)
    outs = [torch.zeros(2 * size) for _ in range(2)]
    with dist._coalescing_manager():
        for index, out in enumerate(outs):
            dist.all_gather_into_tensor(out, torch.full((2,), float(rank + index)))
    assert [out[::2].tolist() for out in outs] == [[float(each + index) for each in range(size)] for index in range(2)]
    parts = [torch.zeros(2) for _ in range(2)]
    with dist._coalescing_manager():
        for part in parts:
            dist.reduce_scatter_tensor(part, torch.ones(2 * size))
    assert all((part == size).all() for part in parts)


def completes_futures() -> None:
    rank, size = ours()
    tensors = [torch.full((50_000,), float(rank)) for _ in range(5)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    futures = [work.get_future().then(lambda future: future.value()[0].sum().item()) for work in works]
    assert [each.wait() for each in futures] == [50_000.0 * sum(range(size))] * 5
    assert all(work.is_completed() for work in works)

    def again(future: Any) -> float:  # a callback that waits for a collective of its own
        tensor = future.value()[0]
        dist.all_reduce(tensor)
        return float(tensor[0])

    work = dist.all_reduce(torch.ones(9), async_op=True)
    assert work.get_future().then(again).wait() == size * size
    assert work.get_future() is work.get_future()


def uses_many_groups() -> None:
    """Subgroups, several at once, beside Gloo; all on one endpoint."""
    rank, size = ours()
    pairs = [dist.new_group([each, (each + 1) % size]) for each in range(size)]
    gloo = dist.new_group(backend="gloo")
    works = []
    for each, group in enumerate(pairs):
        if rank in (each, (each + 1) % size):
            tensor = torch.full((20_000,), float(rank))
            works.append((dist.all_reduce(tensor, group=group, async_op=True), tensor, each + (each + 1) % size))
    theirs = torch.ones(4)
    dist.all_reduce(theirs, group=gloo)
    assert (theirs == size).all()
    for work, tensor, expected in works:
        work.wait()
        assert (tensor == expected).all()
    contexts = {
        id(group_of(group).context) for group in (None, *pairs) if group is not dist.GroupMember.NON_GROUP_MEMBER
    }
    assert len(contexts) == 1
    mine, _ = dist.new_subgroups(group_size=1)
    tensor = torch.ones(3)
    dist.all_reduce(tensor, group=mine)
    assert (tensor == 1).all()


def uses_a_mesh() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    rank, _ = ours()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replica", "shard"))
    whole = torch.arange(16.0).reshape(4, 4)
    tensor = distribute_tensor(whole, mesh["shard"], [Shard(0)])
    assert torch.equal(tensor.full_tensor(), whole)
    assert torch.equal((tensor @ tensor.t()).full_tensor(), whole @ whole.t())
    ranks = torch.full((2,), float(rank))
    dist.all_reduce(ranks, group=mesh.get_group("replica"))
    assert (ranks == 2 * (rank % 2) + 2).all()


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(40, 120), nn.ReLU(), nn.Linear(120, 120), nn.ReLU(), nn.Linear(120, 4))


def batch(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 * step + rank)
    inputs = torch.randn(16, 40, generator=generator)
    return inputs, inputs[:, :4].square()


def trains_ddp(steps: int, faults: str | None = None) -> list[float]:
    if faults:
        group_of().context.impair(faults)
    replicated = DistributedDataParallel(model())
    optimizer = torch.optim.SGD(replicated.parameters(), 0.05)
    losses = []
    for step in range(steps):
        inputs, targets = batch(step, dist.get_rank())
        loss = (replicated(inputs) - targets).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert not faults or sum(plane.lost for plane in group_of().context.plane_counters()) > 0
    return losses


def trains_fsdp(steps: int) -> list[float]:
    from torch.distributed.fsdp import fully_shard

    sharded = model()
    for layer in sharded:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(sharded)
    optimizer = torch.optim.SGD(sharded.parameters(), 0.05)
    losses = []
    for step in range(steps):
        inputs, targets = batch(step, 0)  # the same at all ranks: as one process would train
        loss = (sharded(inputs) - targets).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def trains_alone(steps: int) -> list[float]:
    single = model()
    optimizer = torch.optim.SGD(single.parameters(), 0.05)
    losses = []
    for step in range(steps):
        inputs, targets = batch(step, 0)
        loss = (single(inputs) - targets).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def monitors_a_barrier(late: int) -> str:
    """Return the error of a barrier to which one rank comes late; none if `late` is no rank."""
    if dist.get_rank() == late:
        time.sleep(3)
    try:
        dist.monitored_barrier(timeout=timedelta(seconds=1), wait_all_ranks=True)
    except RuntimeError as error:
        return str(error)
    return ""


def calls_wrongly(case: str, wrong: list[int]) -> str:
    """Call something that cannot be at some ranks, and properly at the others; return the error."""
    rank, size = ours()
    is_wrong = rank in wrong
    try:
        if case == "device":
            dist.all_reduce(torch.ones(3, device="meta" if is_wrong else "cpu"))
        elif case == "type":
            dist.all_reduce(torch.ones(3).to(torch.float8_e4m3fn if is_wrong else torch.float32))
        elif case == "layout":
            dist.all_reduce_coalesced([torch.eye(3).to_sparse_csr() if is_wrong else torch.eye(3)])
        elif case == "operation":
            op = dist.ReduceOp.BAND if is_wrong else dist.ReduceOp.SUM
            dist.all_reduce(torch.ones(3), op)
        elif case == "size":
            dist.all_gather_into_tensor(torch.zeros(3 * size - is_wrong), torch.ones(3))
        elif case == "mixed":
            dist.all_reduce_coalesced([torch.ones(3), torch.ones(3, device="meta" if is_wrong else "cpu")])
    except TrainError as error:
        return str(error)
    return ""


def goes_on_after_wrong_calls() -> None:
    """All ranks refuse the same calls; the group works on."""
    for case in ("device", "type", "operation"):
        assert calls_wrongly(case, list(range(dist.get_world_size())))
        reduces_all_types()


def rebuilds(size: int) -> list[int]:
    """Abort the default group while a collective waits, then meet again in the same process."""
    import threading

    rank = dist.get_rank()
    port: list[int | None] = [None]
    if rank == 0:
        port = [free_port()]
    dist.broadcast_object_list(port, src=0)
    dist.barrier()  # all have the port
    threading.Timer(0.3, lambda: group_of().abort("rebuild")).start() if rank == 0 else None
    try:
        dist.all_reduce(torch.ones(5)) if rank else time.sleep(0.6)
    except TrainError as error:
        assert "rebuild" in str(error)  # noqa: PT017
    dist.destroy_process_group()
    if rank >= size:
        return []
    dist.init_process_group("mrc", init_method=f"tcp://127.0.0.1:{port[0]}", rank=rank, world_size=size)
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    return [int(each) for each in tensor]


def meets_twice_over_one_store(folder: str) -> None:
    rank, size = ours()
    dist.destroy_process_group()
    store = dist.FileStore(os.path.join(folder, "store"), size)
    for _ in range(3):
        dist.init_process_group("mrc", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=20))
        tensor = torch.ones(3)
        dist.all_reduce(tensor)
        assert (tensor == size).all()
        dist.destroy_process_group()


def leaves_nothing() -> list[Any]:
    work = dist.all_reduce(torch.ones(100_000), async_op=True)
    work.get_future().wait()
    dist.new_group([0, 1])
    had = udp_sockets(), memfds()
    dist.destroy_process_group()
    return [had, (udp_sockets(), memfds()), sorted(threads())]


def marks(tensor: torch.Tensor) -> tuple[Any, ...]:
    storage = tensor.untyped_storage()
    kept = (storage.data_ptr(), storage.nbytes(), storage.resizable(), tensor._version)
    return *kept, tensor.shape, tensor.stride(), tensor.requires_grad, tensor.grad_fn


def leaves_no_mark() -> list[str]:
    """Return the operations after which a tensor was no longer as before, except for its values."""
    return [name for form in ("plain", "transposed", "leaf", "bfloat16") for name in marking_operations(form)]


def marking_operations(form: str) -> list[str]:
    rank, size = ours()

    def new(rows: int = 4) -> torch.Tensor:
        tensor = torch.zeros(rows, 6, dtype=torch.bfloat16 if form == "bfloat16" else torch.float32)
        if form == "transposed":
            tensor = torch.zeros(6, rows).t()
        return tensor.requires_grad_(form == "leaf")

    one, other, wide, parts, more = new(), new(), new(4 * size), [new() for _ in range(size)], new(4 * size)
    at_root = parts if rank == 0 else None
    calls: dict[str, Any] = {
        "all_reduce": lambda: dist.all_reduce(one),
        "premul_sum": lambda: dist.all_reduce(one, premultiplied(0.5)),
        "reduce": lambda: dist.reduce(one, 0),
        "broadcast": lambda: dist.broadcast(one, 0),
        "all_gather": lambda: dist.all_gather(parts, one),
        "gather": lambda: dist.gather(one, at_root, 0),
        "scatter": lambda: dist.scatter(one, at_root, 0),
        "reduce_scatter": lambda: dist.reduce_scatter(one, parts),
        "all_to_all": lambda: dist.all_to_all([new() for _ in range(size)], parts),
        "send": lambda: [each.wait() for each in dist.batch_isend_irecv(ring(one, other))],
    }
    if form != "transposed":  # torch itself requires contiguous tensors there
        calls |= {
            "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(wide, one),
            "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(one, wide),
            "all_to_all_single": lambda: dist.all_to_all_single(more, wide),
        }
    tensors = [one, other, wide, more, *parts]
    return [f"{name}, {form}" for name, call in calls.items() if has_marked(call, tensors)]


def has_marked(call: Any, tensors: list[torch.Tensor]) -> bool:
    before = [marks(each) for each in tensors]
    call()
    return [marks(each) for each in tensors] != before


def ring(given: torch.Tensor, out: torch.Tensor) -> list[dist.P2POp]:
    rank, size = ours()
    return [dist.P2POp(dist.isend, given, (rank + 1) % size), dist.P2POp(dist.irecv, out, (rank - 1) % size)]


def premultiplied(factor: Any) -> Any:
    return torch._C._distributed_c10d._make_nccl_premul_sum(factor)


def premultiplies() -> None:
    rank, size = ours()
    total = sum(range(1, size + 1)) / 4
    for dtype in FLOATS:
        for factor in (0.25, torch.tensor([0.25], dtype=dtype)):
            tensor = torch.full((5,), rank + 1, dtype=dtype)
            dist.all_reduce(tensor, premultiplied(factor))
            assert (tensor == total).all(), dtype
    given = torch.full((3,), rank + 1.0)
    dist.reduce(given, 0, premultiplied(0.25))
    assert (given == (total if rank == 0 else rank + 1)).all()
    out, parts = torch.zeros(2), torch.full((2 * size,), rank + 1.0)
    dist.reduce_scatter_tensor(out, parts, premultiplied(0.25))
    assert (out == total).all()
    assert (parts == rank + 1).all()
    with pytest.raises(TrainError, match="PREMUL_SUM is for floating-point"):
        dist.all_reduce(torch.ones(3, dtype=torch.int32), premultiplied(0.25))


def shares_a_process_group_or_refuses_to() -> None:
    from openmrc.train.pytorch.process_group import SHAPE, Shape

    if SHAPE == Shape.PROCESS_GROUP:
        with pytest.raises(TrainError, match="cpu:mrc,cuda:gloo: this version of torch cannot combine"):
            dist.new_group(backend="cpu:mrc,cuda:gloo")
        return
    group = dist.new_group(backend="cpu:mrc,cuda:gloo")
    tensor = torch.ones(3)
    dist.all_reduce(tensor, group=group)
    assert (tensor == dist.get_world_size()).all()
    assert group_of(group).sequence == 1
    assert group._get_backend(torch.device("cuda")).name() == "gloo"


def changes_its_ranks() -> None:
    """Each set of ranks has its numbers and its sum. Torch 2.13 has no `reconfigure` for its default group."""
    from openmrc.train.pytorch.membership import Membership
    from openmrc.train.pytorch.process_group import ReconfigurableProcessGroup

    me, size = ours()
    store = dist.distributed_c10d._get_default_store()
    group: Any = dist.group.WORLD
    if not getattr(group, "supports_reconfigure", False):
        group = ReconfigurableProcessGroup(Membership(store, me, size, "changing", 20.0), None)
    with pytest.raises(AttributeError, match="no ranks before its first reconfigure"):
        group.allreduce([torch.ones(1)])

    def exchange(key: str, value: str) -> list[str]:
        store.set(f"{key} {me}", value)
        return [store.get(f"{key} {each}").decode() for each in range(size)]

    handles = exchange("handle", group.get_reconfigure_handle())

    def become(number: int, ranks: list[int], given: Any = None) -> None:
        wanted = SimpleNamespace(uuid=number, handles=given or [handles[each] for each in ranks], timeout=None)
        assert group.reconfigure(wanted).wait()
        assert (group.rank(), group.size()) == (ranks.index(me), len(ranks))
        tensor = torch.tensor([me, 1.0])
        group.allreduce([tensor]).wait()
        assert tensor.tolist() == [sum(ranks), len(ranks)]

    become(1, list(range(size)))
    if me != 1:
        become(2, [2, 0])
    become(10 + me, [me])
    become(3, [1, 0, 2])
    become(4, sorted(range(size), key=lambda each: handles[each]), set(handles))
    for number, given, said in ((4, handles, "uuid 4 was already used"), (5, handles[:me], "not among the handles")):
        with pytest.raises(TrainError, match=said):
            group.reconfigure(SimpleNamespace(uuid=number, handles=given, timeout=None))
    exchange("done", "")  # nobody is in a call that the others' abort would end
    group.abort()
    become(6, list(range(size)))
    group.shutdown()


def compares_results() -> None:
    """In torch's debug mode an all-reduce is followed by one more call, which compares."""
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    try:
        group = dist.new_group()
    finally:
        dist.set_debug_level(dist.DebugLevel.OFF)
    before = group_of(group).sequence
    for count in (5, 50_000):
        tensor = torch.ones(count)
        dist.all_reduce(tensor, group=group)
        assert (tensor == ours()[1]).all()
    assert group_of(group).sequence == before + 4


def shows_in_a_profile() -> None:
    """Each call is an event of torch's profiler, named as by Gloo; an asynchronous one lasts until its end."""
    rank, size = ours()
    names = {}
    for backend in ("gloo", "mrc"):
        group = dist.new_group(backend=backend)
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as seen:
            tensor, parts = torch.ones(4), [torch.ones(4) for _ in range(size)]
            dist.all_reduce(tensor, group=group)
            dist.broadcast(tensor, 0, group=group)
            dist.reduce(tensor, 0, group=group)
            dist.all_gather(parts, tensor, group=group)
            dist.all_gather_into_tensor(torch.ones(4 * size), tensor, group=group)
            dist.gather(tensor, parts if rank == 0 else None, 0, group=group)
            dist.scatter(tensor, parts if rank == 0 else None, 0, group=group)
            dist.all_to_all_single(torch.ones(size), torch.ones(size), group=group)
            dist.barrier(group=group)
            for work in dist.batch_isend_irecv(
                [
                    dist.P2POp(dist.isend, tensor, (rank + 1) % size, group=group),
                    dist.P2POp(dist.irecv, torch.ones(4), (rank - 1) % size, group=group),
                ]
            ):
                work.wait()
            if rank:
                time.sleep(0.2)
            started = time.monotonic()
            dist.all_reduce(torch.ones(100_000), group=group, async_op=True).wait()
            waited = time.monotonic() - started
            time.sleep(0.1)  # the event ends in the thread of the future
        events = [each for each in seen.events() if each.name.startswith(f"{backend}:")]
        names[backend] = [each.name.partition(":")[2] for each in events]
        if backend == "mrc":
            last = max(events, key=lambda each: each.time_range.start)
            assert last.time_range.elapsed_us() > 0.5e6 * min(waited, 0.2)
    assert set(names["gloo"]) <= set(names["mrc"]), names


def takes_timers() -> None:
    group = dist.new_group(pg_options=Options(timers=Timers(exponential_count=3), shared_memory=False))
    links = group_of(group)._executor.endpoint.links.values()
    assert {link.network.query()[0].exponential_count for link in links if link.network is not None} == {3}


def reduces_on_a_device() -> None:
    """Sum tensors on the accelerator behind and before kernels of the current stream, synchronously and not."""
    device = torch.accelerator.current_accelerator()
    rank, size = dist.get_rank(), dist.get_world_size()
    total = size * (size + 1) / 2
    for count in (1, 5_000, 10_000_000):
        for is_async in (False, True):
            tensor = torch.ones(count, device=device).cumsum(0).sign() * (rank + 1)
            work = dist.all_reduce(tensor, async_op=is_async)
            if work is not None:
                work.wait()
            assert ((tensor * 2) == 2 * total).all()
    gathered = torch.empty(3 * size, device=device)
    dist.all_gather_into_tensor(gathered, torch.full((3,), float(rank), device=device))
    assert gathered.view(size, 3)[:, 0].tolist() == list(range(size))
