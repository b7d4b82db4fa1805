"""A process without a file descriptor left: the package's errors, before anything was posted, and nothing leaks."""

from __future__ import annotations

import gc
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from openmrc.live.errors import NoRoomError, descriptors_for
from openmrc.live.host.runtime import _eventfds
from openmrc.live.objects.completion import Notifier


@contextmanager
def few_left(count: int) -> Iterator[None]:
    """Leave so many descriptors to this process."""
    gc.collect()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = [os.dup(0)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (opened[0] + 1 + count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in opened:
            os.close(descriptor)


def open_count() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_a_notifier_without_a_descriptor_names_what_it_is_for_and_the_limit() -> None:
    with few_left(0), pytest.raises(NoRoomError, match=r"completion queue: no file descriptor is left of \d+"):
        Notifier("completion queue")
    gc.collect()  # its __del__ has nothing to close


@pytest.mark.parametrize("left", [0, 1])
def test_the_descriptors_of_an_endpoint_are_all_opened_or_none(left: int) -> None:
    gc.collect()  # what earlier tests left must not be closed between the two counts
    before = open_count()
    with few_left(left), pytest.raises(NoRoomError, match="context: no file"), descriptors_for("context"):
        _eventfds()
    assert open_count() == before


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(FileNotFoundError), descriptors_for("context"):
        os.open("/nothing/here", os.O_RDONLY)
