"""Messages and operations: whatever bytes come, a typed error or a message is made of them."""

from __future__ import annotations

import contextlib
from inspect import signature
from typing import get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmrc.ctl import messages, server
from openmrc.ctl.errors import NotSupportedError
from openmrc.errors import Malformed


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_malformed(body: bytes) -> None:
    with contextlib.suppress(Malformed):
        messages.message(body)


@given(st.sampled_from(sorted(server.OPERATIONS)), st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3), max_leaves=8,
))  # fmt: skip
def test_any_request_decodes_or_is_refused_with_its_field(name: str, request: object) -> None:
    with contextlib.suppress(msgspec.ValidationError, msgspec.DecodeError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=server.operation(name).request)


@pytest.mark.parametrize("name", sorted(server.OPERATIONS))
def test_every_operation_says_its_request_and_reply(name: str) -> None:
    found = server.operation(name)
    assert issubclass(found.request, msgspec.Struct)
    assert issubclass(get_type_hints(found.serve)["return"], msgspec.Struct)
    assert all(each.kind is each.KEYWORD_ONLY for each in [*signature(found.serve).parameters.values()][1:])
    assert found.serve.__doc__


def test_an_operation_that_is_none_is_named_with_those_there_are() -> None:
    with pytest.raises(NotSupportedError, match="'nothing'; there are device"):
        server.operation("nothing")


@pytest.mark.parametrize("length", [0, 1025, 0xFFFFFFFF])
def test_lengths_are_bounded(length: int) -> None:
    with pytest.raises(Malformed, match=r"1\.\.1024"):
        messages.length_of(messages.LENGTH.pack(length), 1024)
