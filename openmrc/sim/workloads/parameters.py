"""The base of every family's parameters: a YAML mapping whose `kind` names the family."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from openmrc.base.amounts import Duration, refuse_excess

Count = Annotated[int, Meta(ge=1, lt=1 << 40)]
Amount = Annotated[int, Meta(ge=0, lt=1 << 40)]
Share = Annotated[float, Meta(gt=0, le=1)]


class Parameters(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="kind", omit_defaults=True):
    """Parameters common to all families."""

    start: Duration = "0us"  # when the workload begins
    hosts: str | None = None  # those it runs on, such as 0-63; default: all (`shares`)
    every: Duration | None = None  # it begins again after this time, `times` times in all
    times: Count = 1
    second_class: bool = False  # its data waits in queues of its own, with a share of links (`network.links.sharing`)

    def __post_init__(self) -> None:
        """Refuse sizes and times that do not fit into the simulator's integers."""
        refuse_excess(self)
        if (self.times > 1) != (self.every is not None):
            raise ValueError("every, times: a workload that begins again needs both, such as every: 10ms, times: 5")
