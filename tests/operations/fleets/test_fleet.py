"""What a controller makes of an endpoint's votes, through a socket that a test answers."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from openmrc.ctl.device import PortReport
from openmrc.ctl.endpoint_ops import DenialsReply, PortsReply, Vote, VotesReply
from openmrc.fabric.addressing.paths import Choice, path
from openmrc.fabric.addressing.usid import usid_plan
from openmrc.fabric.model.build import build
from openmrc.operations.diagnosis.path_index import PathIndex
from openmrc.operations.fleets import fleet
from tests.operations.control.test_plane_watch import FOUR

PLAN = usid_plan(build(FOUR))


class Socket:
    """The controller socket of an endpoint of h0, which sends to h3 over one path."""

    vote = Vote(peer=PLAN.nic_address(0, 3), port=1, ev=7, path=path(PLAN, 0, 3, Choice(0, uplink=1)).address)

    def __init__(self, path: Path, timeout: float) -> None:
        self._replies = {
            "ports": PortsReply(ports=[PortReport(port=1, address=PLAN.nic_address(0, 0), enabled=True, up=True)]),
            "denials": DenialsReply(epoch=0, denied=[]),
        }

    def call(self, operation: Callable[..., object], **request: object) -> Any:
        return self._replies.get(operation.__name__, VotesReply(votes=[self.vote]))

    def close(self) -> None:
        pass


def test_a_packet_that_has_arrived_is_no_loss_however_late_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "CtlClient", Socket)
    vote, seen = Socket.vote, list[tuple[int, int]]()
    agent = fleet.AgentOfEndpoint(Path(f"{os.getpid()}-0.sock"), PathIndex(PLAN))
    for vote.acked, vote.lost, vote.false_losses in (
        (100, 0, 0),  # the first look
        (195, 5, 5),
        (290, 10, 7),
        (390, 10, 10),
        (487, 13, 10),
        (583, 17, 10),
    ):
        seen += [(counted, lost) for _, _, counted, lost, _ in agent.look()]
    assert seen == [(100, 0), (100, 3), (100, 0), (100, 0), (100, 4)]
    assert agent.over(0, frozenset({seen_link(vote)})) == (500, 7)


def seen_link(vote: Vote) -> int:
    links = PathIndex(PLAN).links(0, 0, 3, vote.path)
    assert links is not None
    return links[0]
