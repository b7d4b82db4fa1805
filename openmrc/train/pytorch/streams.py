"""Copies between the memory of a device and pinned memory of the host, on streams of the device.

Written against torch's classes for any device (`torch.Stream`, `torch.Event`, `torch.accelerator`), so it names none.
"""

from __future__ import annotations

import threading
from typing import Any, Protocol

import torch


class DeviceCopies(Protocol):
    """Interface of the copies to and from one device; events are what `fetch` and `store` return."""

    def host_like(self, tensor: Any) -> Any:
        """Return an uninitialised contiguous tensor in pinned host memory, of a tensor's shape and type."""

    def begin(self) -> None:
        """Let later copies start after the work that the caller's current stream has been given so far."""

    def fetch(self, host: Any, tensor: Any) -> Any:
        """Start to copy a device's tensor to the host; return an event to `synchronize`."""

    def store(self, tensor: Any, host: Any) -> Any:
        """Start to copy to the device; return an event for `join`."""

    def join(self, event: Any) -> None:
        """Let work that the caller's current stream is given from now on start after an event."""


class StreamCopies:
    """Copies on two streams of their own, one for each direction."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._in, self._out = torch.Stream(device), torch.Stream(device)
        self._lock = threading.Lock()  # `store` is called by the thread that completes a collective

    def host_like(self, tensor: Any) -> Any:
        """Return pinned memory."""
        return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)

    def begin(self) -> None:
        """Record an event on the caller's stream, which both streams wait for."""
        event = torch.accelerator.current_stream(self._device).record_event()
        for stream in (self._in, self._out):
            stream.wait_event(event)

    def fetch(self, host: Any, tensor: Any) -> Any:
        """Copy on the stream towards the host."""
        return self._copy(self._in, host, tensor, tensor)

    def store(self, tensor: Any, host: Any) -> Any:
        """Copy on the stream towards the device."""
        return self._copy(self._out, tensor, host, tensor)

    def join(self, event: Any) -> None:
        """Let the caller's stream wait."""
        torch.accelerator.current_stream(self._device).wait_event(event)

    def _copy(self, stream: Any, target: Any, source: Any, on_device: Any) -> Any:
        with self._lock, stream, torch.no_grad():
            target.copy_(source, non_blocking=True)
            on_device.record_stream(stream)  # so that its memory is not reused before
            return stream.record_event()
