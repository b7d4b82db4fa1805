"""Collectives of tensors on a device, through pinned memory of the host, in the order of streams (docs/collectives.md).

`wait` makes the caller's current stream wait for the copy back, which is all that later kernels need: it waits for the
collective, not for the device. All ranks cut a large tensor alike, as the sizes are the same.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple

import torch

from openmrc.train.errors import CollectiveTimeoutError, UnsupportedError
from openmrc.train.group import Group
from openmrc.train.pytorch.compiling import untraced
from openmrc.train.pytorch.works import NO_TIMEOUT, FutureThreads, MrcWork


class StreamCopies:
    """Copies to and from one device on two streams of their own; events are what `fetch` and `store` return."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._in, self._out = torch.Stream(device), torch.Stream(device)
        self._lock = threading.Lock()  # `store` is called by the thread that completes a collective

    def host_like(self, tensor: Any) -> Any:
        """Return an uninitialised contiguous tensor in pinned host memory, of a tensor's shape and type."""
        return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)

    def begin(self) -> None:
        """Let later copies start after the work that the caller's current stream has been given so far."""
        event = torch.accelerator.current_stream(self._device).record_event()
        for stream in (self._in, self._out):
            stream.wait_event(event)

    def fetch(self, host: Any, tensor: Any) -> Any:
        """Start to copy a device's tensor to the host; return an event to `synchronize`."""
        return self._copy(self._in, host, tensor, tensor)

    def store(self, tensor: Any, host: Any) -> Any:
        """Start to copy to the device; return an event for `join`."""
        return self._copy(self._out, tensor, host, tensor)

    def join(self, event: Any) -> None:
        """Let work that the caller's current stream is given from now on start after an event."""
        torch.accelerator.current_stream(self._device).wait_event(event)

    def _copy(self, stream: Any, target: Any, source: Any, on_device: Any) -> Any:
        with self._lock, stream, torch.no_grad():
            target.copy_(source, non_blocking=True)
            on_device.record_stream(stream)  # so that its memory is not reused before
            return stream.record_event()


PIECE = 4 << 20  # bytes; two chunks of a link
_Start = Callable[[Any, Any], MrcWork]  # a collective of (outputs, inputs) on the host


class _Pair(NamedTuple):
    """A tensor on the device, and its memory on the host."""

    device: Any
    host: Any


def is_on_device(tensor: Any) -> bool:
    """Whether a dense tensor is in the memory of this machine's accelerator."""
    kind = tensor.device.type if isinstance(tensor, torch.Tensor) else "cpu"
    return kind != "cpu" and tensor.layout == torch.strided and kind == accelerator()


@functools.cache
def accelerator() -> str | None:
    """Return the type of the devices that this torch was built for, such as cuda; None: only cpu."""
    device = torch.accelerator.current_accelerator()
    return None if device is None else str(device.type)


class Staging:
    def __init__(
        self,
        group: Group,
        copies_of: Callable[[Any], StreamCopies] = StreamCopies,
        is_staged: Callable[[Any], bool] = is_on_device,
    ) -> None:
        """`copies_of` returns the copies of a `torch.device`; `is_staged` says which tensors need them."""
        self._group = group
        self._copies_of = functools.cache(copies_of)
        self._is_staged = is_staged

    def takes(self, tensors: Any) -> bool:
        """Whether tensors in nested lists, at least one, are on a device."""
        given = _flat(tensors)
        return bool(given) and all(self._is_staged(tensor) for tensor in given)

    def start(
        self, call: _Start, outputs: Any, inputs: Any, threads: FutureThreads, *, in_pieces: bool = False
    ) -> DeviceWork:
        """Start a collective; `outputs` and `inputs` are tensors, or nested lists of them, on one device.

        `in_pieces`: both are the same single tensor, whose elements are treated alike.
        """
        copies = self._copies_of(device_of((outputs, inputs)))
        copies.begin()
        if in_pieces and outputs is inputs:
            works = [self._one(call, copies, part, part, threads) for part in pieces_of(outputs)]
        else:
            works = [self._one(call, copies, outputs, inputs, threads)]
        return DeviceWork(works, outputs, copies, threads)

    def send(self, call: Callable[[Any], MrcWork], tensors: Any, threads: FutureThreads) -> DeviceWork:
        """Copy tensors to the host, wait for that, and call `call` with what is there."""
        copies = self._copies_of(device_of(tensors))
        copies.begin()
        pairs = [_Pair(tensor, copies.host_like(tensor)) for tensor in tensors]
        _synchronize([copies.fetch(pair.host, pair.device) for pair in pairs])
        work = call([pair.host for pair in pairs])
        return DeviceWork([_StagedWork(work, (), copies)], tensors, copies, threads)

    def receive(self, call: Callable[[Any], MrcWork], tensors: Any, threads: FutureThreads) -> DeviceWork:
        """Call `call` with memory of the host, and copy what arrives there to the tensors."""
        copies = self._copies_of(device_of(tensors))
        copies.begin()
        pairs = [_Pair(tensor, copies.host_like(tensor)) for tensor in tensors]
        work = call([pair.host for pair in pairs])
        return DeviceWork([_StagedWork(work, pairs, copies)], tensors, copies, threads)

    def _one(
        self, call: _Start, copies: StreamCopies, outputs: Any, inputs: Any, threads: FutureThreads
    ) -> _StagedWork:
        sources = _mapped(inputs, lambda tensor: _Pair(tensor, copies.host_like(tensor)))
        targets = sources
        if outputs is not inputs:
            targets = _mapped(outputs, lambda tensor: _Pair(tensor, copies.host_like(tensor)))
        arrived = [copies.fetch(pair.host, pair.device) for pair in _flat(sources)]
        self._group.hold(lambda: _synchronize(arrived))
        host_outputs, host_inputs = (_mapped(each, lambda pair: pair.host) for each in (targets, sources))
        work = call(host_outputs, host_outputs if outputs is inputs else host_inputs)
        return _StagedWork(work, _flat(targets), copies)


class _StagedWork:
    """One collective on host memory, and the copies of its results to the device."""

    def __init__(self, work: MrcWork, results: Sequence[_Pair], copies: StreamCopies) -> None:
        self.work = work
        self.stored: list[Any] = []  # events
        self.error: BaseException | None = None
        self._results = results
        self._copies = copies
        self.is_stored = threading.Event()
        work.when_done(self._store)

    def _store(self) -> None:
        try:
            if self.work.exception() is None:
                self.stored = [self._copies.store(pair.device, pair.host) for pair in self._results]
        except BaseException as error:
            self.error = error
        finally:
            self.is_stored.set()


@untraced
class DeviceWork(MrcWork):
    def __init__(
        self, parts: Sequence[_StagedWork], tensors: Any, copies: StreamCopies, threads: FutureThreads
    ) -> None:
        super().__init__([each for part in parts for each in part.work.works], tensors, threads, None)
        self._parts = parts
        self._copies = copies

    def is_completed(self) -> bool:
        """Whether the collective has ended and the copies of its results are on their stream."""
        return super().is_completed() and all(part.is_stored.is_set() for part in self._parts)

    def exception(self) -> BaseException | None:
        """Return the first error; None if there is none."""
        return super().exception() or next((part.error for part in self._parts if part.error is not None), None)

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        """Wait for the collective, and let the current stream wait for its results."""
        super().wait(timeout)
        for part in self._parts:
            if not part.is_stored.wait(timeout.total_seconds() or None):
                raise CollectiveTimeoutError("the results are not on their way to the device; the call continues")
            if part.error is not None:
                raise part.error
            for event in part.stored:
                self._copies.join(event)
        return True

    def source_rank(self) -> int:
        return self._parts[0].work.source_rank()

    def _begin_future(self) -> Any:
        """Return a future whose callbacks run on streams that wait for the results."""
        device = device_of(self._tensors)
        done: Any = torch.futures.Future(devices=[device] if device.type != "cpu" else None)
        future = done.then(lambda _: self._outcome())
        self.when_done(lambda: self._threads.submit(lambda: self._complete(done)))
        return future

    def _complete(self, done: Any) -> None:
        with suppress(Exception):  # `_outcome` raises it
            self.wait()
        done.set_result(self._tensors)


def device_of(tensors: Any) -> Any:
    """Return the device of tensors in nested lists; UnsupportedError if they are on several."""
    devices = {tensor.device for tensor in _flat(tensors)}
    if len(devices) > 1:
        names = ", ".join(sorted(map(str, devices)))
        raise UnsupportedError(f"device: the tensors of one call are on different devices: {names}")
    return devices.pop() if devices else torch.device("cpu")


def pieces_of(tensors: Any) -> list[Any]:
    """Return lists of one tensor each: the pieces of a single contiguous one, or else all tensors as they are."""
    (tensor, *others) = tensors
    if others or not tensor.is_contiguous() or tensor.nbytes <= PIECE:
        return [tensors]
    return [[part] for part in tensor.detach().view(-1).split(PIECE // tensor.element_size())]


def _synchronize(events: Sequence[Any]) -> None:
    for event in events:
        event.synchronize()


def _mapped(tensors: Any, change: Callable[[Any], Any]) -> Any:
    """Return nested lists of tensors or pairs with each element changed."""
    if isinstance(tensors, list | tuple) and not isinstance(tensors, _Pair):
        return [_mapped(each, change) for each in tensors]
    return tensors if tensors is None else change(tensors)


def _flat(tensors: Any) -> list[Any]:
    if isinstance(tensors, list | tuple) and not isinstance(tensors, _Pair):
        return [leaf for each in tensors for leaf in _flat(each)]
    return [] if tensors is None else [tensors]
