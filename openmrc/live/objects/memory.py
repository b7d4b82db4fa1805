"""Memory regions: writable buffers of this process that peers reach by a key, kept in place until deregistered."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from openmrc.engine.responder.regions import Access
from openmrc.live.errors import InvalidArgumentError

if TYPE_CHECKING:
    from openmrc.live.objects.context import Context


def bytes_of(buffer: Any) -> NDArray[np.uint8]:
    """Return the memory of a contiguous writable buffer as bytes, without a copy.

    Accepts any object with the buffer protocol (bytearray, mmap, NumPy array) and CPU tensors.
    """
    if hasattr(buffer, "data_ptr") and hasattr(buffer, "numpy"):  # a torch tensor: it has no buffer protocol
        buffer = _tensor_memory(buffer)
    try:
        view = memoryview(buffer)
    except TypeError as error:
        if not hasattr(buffer, "__array_interface__"):
            raise InvalidArgumentError(f"buffer: {type(buffer).__name__} is not a buffer") from error
        buffer = np.asarray(buffer)
        view = memoryview(buffer)
    if view.readonly:
        raise InvalidArgumentError(f"buffer: {type(buffer).__name__} is read-only; a memory region must be writable")
    if not view.c_contiguous:
        raise InvalidArgumentError("buffer: not contiguous")
    return np.frombuffer(view.cast("B") if view.nbytes else view, dtype=np.uint8)


def _tensor_memory(tensor: Any) -> Any:
    if tensor.device.type != "cpu":
        raise InvalidArgumentError(f"buffer: the tensor is on {tensor.device}, only CPU memory can be registered")
    if not tensor.is_contiguous():
        raise InvalidArgumentError("buffer: the tensor is not contiguous")
    flat = tensor.detach().reshape(-1)
    return flat.view(sys.modules["torch"].uint8).numpy()  # any element type, also those NumPy does not know


class MemoryRegion:
    """A registered buffer (ibv_mr). `region[a:b]` is a part of it for a write to send."""

    def __init__(self, pd: ProtectionDomain, buffer: Any, access: Access) -> None:
        """Use `ProtectionDomain.reg_mr` instead."""
        self.pd = pd
        self.access = access
        self.bytes = bytes_of(buffer)  # keeps the buffer alive, and prevents a bytearray from resizing
        self.length = len(self.bytes)
        if self.length == 0:
            raise InvalidArgumentError("buffer: empty")
        self.addr = int(self.bytes.ctypes.data)
        self.key = 0
        try:
            pd.context.nic.register(self)
        except BaseException:
            self.dereg()  # interrupted after it was registered
            raise

    def __repr__(self) -> str:
        return f"<MemoryRegion {self.key:#x}, {self.length} bytes at {self.addr:#x}>"

    @property
    def l_key(self) -> int:
        """Key for local use."""
        return self.key

    @property
    def r_key(self) -> int:
        """Key that peers must present."""
        return self.key

    @property
    def is_registered(self) -> bool:
        """Whether packets can still reach it."""
        return self.key != 0

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, part: slice) -> RegionSlice:
        """Return a part, as sequences are sliced; only steps of 1."""
        start, stop, step = part.indices(self.length)
        if step != 1:
            raise InvalidArgumentError(f"slice: step {step} is not 1")
        return RegionSlice(self, start, max(stop - start, 0))

    def dereg(self) -> None:
        """Deregister the memory: packets no longer read or write it. EBUSY while posted writes read from it."""
        if self.key == 0:
            return
        self.pd.context.nic.deregister(self)

    def __enter__(self) -> MemoryRegion:
        return self

    def __exit__(self, *_: object) -> None:
        self.dereg()


class RegionSlice:
    """A part of a memory region, as the source of a write (ibv_sge)."""

    __slots__ = ("length", "offset", "region")

    def __init__(self, region: MemoryRegion, offset: int, length: int) -> None:
        """Create the slice of `length` bytes from `offset`; the same as `region[a:b]`."""
        self.region = region
        self.offset = offset
        self.length = length

    def __repr__(self) -> str:
        return f"<RegionSlice {self.offset}..{self.offset + self.length} of {self.region!r}>"

    @property
    def addr(self) -> int:
        """Address of its first byte."""
        return self.region.addr + self.offset


class ProtectionDomain:
    """A group of queue pairs and of the memory regions that they may access (ibv_pd)."""

    def __init__(self, context: Context, number: int) -> None:
        """Use `Context.alloc_pd` instead."""
        self.context = context
        self.number = number

    def __repr__(self) -> str:
        return f"<ProtectionDomain {self.number}>"

    def reg_mr(self, buffer: Any, access: Access = Access.REMOTE_WRITE) -> MemoryRegion:
        """Register a writable buffer; ENOMEM if the context's `max_mr` are used up."""
        return MemoryRegion(self, buffer, access)

    def dealloc(self) -> None:
        """Deallocate the domain; EBUSY while regions or queue pairs are in it."""
        self.context.nic.check_domain_is_free(self)
