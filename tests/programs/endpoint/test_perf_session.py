"""What a client of the bandwidth test hears between its last write and the server's counters."""

from __future__ import annotations

from typing import Any

import pytest

from openmrc.programs.perf.session import Client
from openmrc.programs.perf.words import Carried, Ready, Taken


class Scripted:
    """A conversation whose words are known."""

    def __init__(self, *words: Any) -> None:
        self._words = list(words)

    def hear(self, kind: Any) -> Any:
        word = self._words.pop(0)
        if not isinstance(word, kind):
            raise TypeError(f"sent {type(word).__name__}")
        return word


def client(*words: Any) -> Client:
    made = object.__new__(Client)
    made.conversation = Scripted(*words)  # type: ignore[assignment]
    return made


def test_grants_may_come_before_the_counters() -> None:
    carried = Carried([])
    assert client(Taken(0, 128), Taken(1, 128), carried)._carried() is carried


def test_nothing_else_may() -> None:
    with pytest.raises(TypeError, match="Ready"):
        client(Taken(0, 128), Ready())._carried()
