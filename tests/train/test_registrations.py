import gc

import numpy as np
import pytest

from openmrc.train.buffers import bytes_of
from openmrc.train.registrations import Registrations
from openmrc.verbs import Context
from tests.needs import require


def test_an_array_is_registered_once_and_forgotten_when_it_is_gone() -> None:
    with Context(["127.0.0.1:39011"]) as context:
        pd = context.alloc_pd()
        memory = Registrations(pd)
        array = np.zeros(100, np.float32)
        first = memory.take(array.view(np.uint8))
        memory.give_back(first)
        assert memory.take(array.view(np.uint8)) is first
        memory.give_back(first)
        del array
        gc.collect()
        other = np.zeros(7, np.uint8)
        memory.take(other)
        assert len(memory) == 1
        assert not first.is_registered


def test_what_is_in_use_stays_registered_although_its_array_is_gone() -> None:
    with Context(["127.0.0.1:39012"]) as context:
        memory = Registrations(context.alloc_pd())
        array = np.zeros(100, np.uint8)
        region = memory.take(array)
        del array
        gc.collect()
        memory.take(np.zeros(8, np.uint8))
        assert region.is_registered
        memory.give_back(region)
        assert not region.is_registered


@pytest.mark.needs("torch")
def test_the_memory_of_a_tensor_is_registered_once_however_many_arrays_are_made_over_it() -> None:
    """A call makes an array over its tensor, which is gone after it; to register takes two turns of the event loop."""
    require("torch")
    import torch

    from openmrc.train.pytorch.tensors import moved

    with Context(["127.0.0.1:39013"]) as context:
        memory = Registrations(context.alloc_pd())
        tensor = torch.zeros(100)
        for _ in range(3):
            region = memory.take(bytes_of(moved(tensor).array))
            memory.give_back(region)
            gc.collect()
        part = tensor[50:]
        memory.give_back(memory.take(bytes_of(moved(part).array)))
        del tensor
        gc.collect()
        assert len(memory) == 2  # a view keeps the memory
        assert region.is_registered
        del part
        gc.collect()
        memory.take(np.zeros(7, np.uint8))
        assert len(memory) == 1
        assert not region.is_registered
