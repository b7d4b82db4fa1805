"""What a page can look at: the interface of its sources."""

from __future__ import annotations

from typing import Protocol

from openmrc.operations.page.pictures import Frame, LinkDetail, PageAction, Picture


class PageSource(Protocol):
    """A running simulation, or the endpoints of a host. Methods may be called from any thread."""

    def picture(self) -> Picture:
        """Return what does not change."""

    def frame(self) -> Frame:
        """Advance by one frame's time and return what changed; called by one thread only."""

    def cell(self, number: int) -> list[LinkDetail]:
        """Return the links of a cell, at most some; ConfigError: there is no such cell."""

    def act(self, action: PageAction) -> str:
        """Do something; return a sentence about it. ConfigError: the target or verb is wrong."""

    def choose(self, pair: str) -> None:
        """Show the EVs of this queue pair from the next frame on; ConfigError: there is none of this name."""

    def close(self) -> None:
        """Stop."""
