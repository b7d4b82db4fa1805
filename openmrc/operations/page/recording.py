"""The frames of a run, kept for late viewers and for a file to hand on."""

import threading
from pathlib import Path

import msgspec

from openmrc.operations.page.pictures import Frame, Picture

MOST_FRAMES = 6000  # kept; then every second one is dropped
MOST_BYTES = 64 << 20  # of encoded frames kept: large fabrics keep fewer
_PAGE = Path(__file__).with_name("page.html")
_MARK = '<script type="application/json" id="recorded"></script>'


class PageRecording:
    """Encoded frames in order; thread-safe."""

    def __init__(self, picture: Picture) -> None:
        self.picture = picture
        self._frames: list[bytes] = []
        self._bytes = 0
        self._lock = threading.Condition()
        self.dropped = 0  # frames thinned out
        self.latest: bytes = b""
        self.number = 0

    def add(self, frame: Frame) -> None:
        encoded = msgspec.json.encode(frame)
        with self._lock:
            self._frames.append(encoded)
            self._bytes += len(encoded)
            if len(self._frames) > MOST_FRAMES or self._bytes > MOST_BYTES:
                self._thin()
            self.latest, self.number = encoded, frame.number
            self._lock.notify_all()

    def wait(self, number: int, seconds: float) -> tuple[bytes, int]:
        """Return the newest frame and its number when it is beyond `number`, or what there is after `seconds`."""
        with self._lock:
            self._lock.wait_for(lambda: self.number > number, seconds)
            return self.latest, self.number

    def frames(self) -> list[bytes]:
        """Return all frames that are kept."""
        with self._lock:
            return list(self._frames)

    def page(self) -> str:
        """Return one HTML file that replays the run without a server."""
        kept = b"[" + b",".join(self.frames()) + b"]"
        document = b'{"picture":' + msgspec.json.encode(self.picture) + b',"frames":' + kept + b"}"
        safe = document.decode().replace("<", "\\u003c")  # no name in it can end the element
        return page_text().replace(_MARK, _MARK.replace("></", f">{safe}</"))

    def _thin(self) -> None:
        """Drop every second frame, but no event: those move to the frame that follows."""
        kept: list[bytes] = []
        for first, second in zip(self._frames[::2], self._frames[1::2], strict=False):
            earlier, later = (msgspec.json.decode(each, type=Frame) for each in (first, second))
            later.events = [*earlier.events, *later.events]
            kept.append(msgspec.json.encode(later))
        if len(self._frames) % 2:
            kept.append(self._frames[-1])
        self.dropped += len(self._frames) - len(kept)
        self._frames, self._bytes = kept, sum(map(len, kept))


def page_text() -> str:
    """Return the page, with nothing recorded."""
    return _PAGE.read_text("utf-8")
