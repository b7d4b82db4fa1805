"""A real Chromium, driven over WebDriver (W3C), which chromedriver speaks."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Browser:
    """One window."""

    def __init__(self, driver: str, size: tuple[int, int], phone: bool) -> None:
        options: dict[str, Any] = {
            "args": ["--headless=new", "--no-sandbox", "--disable-gpu", f"--window-size={size[0]},{size[1]}"]
        }
        if phone:
            metrics = {"width": size[0], "height": size[1], "pixelRatio": 2, "touch": True, "mobile": True}
            options["mobileEmulation"] = {"deviceMetrics": metrics}
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        self._driver = driver
        found = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"/session/{found['sessionId']}"

    def open(self, url: str) -> None:
        """Open an address."""
        self._ask("POST", f"{self._session}/url", {"url": url})

    def run(self, script: str) -> Any:
        """Return the value of a script."""
        return self._ask("POST", f"{self._session}/execute/sync", {"script": script, "args": []})

    def until(self, script: str, seconds: float = 30.0) -> Any:
        """Return the value of an expression as soon as it is true."""
        deadline = time.monotonic() + seconds
        while not (found := self.run(f"return {script}")):
            assert time.monotonic() < deadline, f"not within {seconds} s: {script}"
            time.sleep(0.05)
        return found

    def click(self, x: float, y: float) -> None:
        """Press and release at a point of the window."""
        move = {"type": "pointerMove", "duration": 0, "x": round(x), "y": round(y), "origin": "viewport"}
        press = [{"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}]
        mouse = {"type": "pointer", "id": "mouse", "actions": [move, *press]}
        self._ask("POST", f"{self._session}/actions", {"actions": [mouse]})

    def click_on(self, selector: str) -> None:
        """Click on the middle of an element."""
        found = f"document.querySelector({selector!r})"
        self.until(f"({found} && ({found}.scrollIntoView({{block: 'center'}}), true))")
        middle = f"(b => b && [b.left + b.width / 2, b.top + b.height / 2])({found} && {found}.getBoundingClientRect())"
        self.click(*self.until(middle))

    def complaints(self) -> list[str]:
        """Return what the browser logged."""
        return [line["message"] for line in self._ask("POST", f"{self._session}/se/log", {"type": "browser"})]

    def picture(self, path: Path) -> None:
        """Write a PNG of the window."""
        path.write_bytes(base64.b64decode(self._ask("GET", f"{self._session}/screenshot")))

    def close(self) -> None:
        """Close the window."""
        with contextlib.suppress(OSError):
            self._ask("DELETE", self._session)

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self._driver + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(json.load(error)["value"]["message"]) from None


@contextmanager
def browsers() -> Iterator[Callable[..., Browser]]:
    """Yield a function that opens a window: `size=(w, h)`, `phone=True`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    opened: list[Browser] = []

    def window(size: tuple[int, int] = (1400, 1000), phone: bool = False) -> Browser:
        opened.append(Browser(f"http://127.0.0.1:{port}", size, phone))
        return opened[-1]

    try:
        for _ in range(200):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=5).close()
                break
            time.sleep(0.05)
        yield window
    finally:
        for each in opened:
            each.close()
        process.terminate()
        process.wait(20)
