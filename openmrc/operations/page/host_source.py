"""The endpoints of this host, through their controller sockets."""

import threading
import time

from openmrc.ctl.client import CtlClient, local_endpoints
from openmrc.ctl.endpoint_ops import set_port
from openmrc.errors import ConfigError, MrcError
from openmrc.operations.page.pictures import CellGrid, Frame, LinkDetail, LogLine, PageAction, Picture
from openmrc.operations.page.shown import ShownPairs
from openmrc.telemetry.event_log import TelemetryEvent
from openmrc.telemetry.rates import HostRates, HostWatch
from openmrc.telemetry.snapshot_ops import host_events, host_snapshots, snapshot
from openmrc.telemetry.snapshots import EndpointSnapshot, PortSnapshot

FRAME_SECONDS = 0.5  # between two looks
_FULL_GBPS = 100.0  # load of a port is shown as a share of this: the rate of its interface is not known


class HostSource:
    """Looks at all endpoints that are there when the page is opened; later ones need a new page."""

    def __init__(self, folder: str | None = None) -> None:
        """Look once; ConfigError: there is no endpoint."""
        self._folder = folder
        self._watch = HostWatch()
        self._lock = threading.Lock()  # of what follows
        self._latest: list[EndpointSnapshot] = host_snapshots(folder, with_evs=True)
        if not self._latest:
            raise ConfigError("no endpoint on this host; start programs with MRC_CTL=on")
        self._watch.look(self._latest)
        self._seen: dict[str, int] = {}
        self._pairs = ShownPairs()
        self._frames = 0
        self._begun = time.time()
        self._devices = [each.device for each in self._latest]
        self._planes = max(len(each.ports) for each in self._latest)
        self._actions: list[LogLine] = []

    def picture(self) -> Picture:
        """Return endpoints as rows and their ports as columns."""
        grid = CellGrid(
            name="Ports of this host",
            plane=0,
            rows=len(self._devices),
            columns=self._planes,
            first_cell=0,
            links_per_cell=1,
            links=len(self._devices) * self._planes,
        )
        return Picture(
            title="this host",
            kind="host",
            nics=len(self._devices),
            links=grid.links,
            planes=self._planes,
            grids=[grid],
            plane_names=[f"port {plane + 1}" for plane in range(self._planes)],
            actions=["drain", "repair"],
        )

    def frame(self) -> Frame:
        """Wait until the next look is due, and look."""
        time.sleep(FRAME_SECONDS)
        snapshots = host_snapshots(self._folder, with_evs=True)
        events = host_events(self._seen, self._folder)
        with self._lock:
            self._latest = snapshots
            rates = self._watch.look(snapshots)
            self._frames += 1
            return self._frame(rates, events)

    def cell(self, number: int) -> list[LinkDetail]:
        row, port = divmod(number, self._planes)
        if not 0 <= row < len(self._devices):
            raise ConfigError(f"cell: {number} is not in 0..{len(self._devices) * self._planes - 1}")
        with self._lock:
            found = self._port(self._devices[row], port)
        if found is None:
            return []
        name = f"{self._devices[row]} port {port + 1}"
        health = "up" if _health(found) == 0 else ", ".join(found.faults) or ("silent" if found.silent else "down")
        return [LinkDetail(name=name, ends=[name], health=health, lost=found.lost, addresses=[found.address])]

    def act(self, action: PageAction) -> str:
        """Drain (disable) or repair (enable) a port."""
        if action.verb not in ("drain", "repair"):
            raise ConfigError(f"verb: {action.verb!r} is not one of drain, repair")
        device, _, number = action.target.partition(" port ")
        if device not in self._devices or not number.isdigit():
            raise ConfigError(f"target: {action.target!r} is not a port, such as {self._devices[0]} port 1")
        client = self._client(device)
        with client:
            client.call(set_port, port=int(number), enabled=action.verb == "repair")
        text = f"{action.target} {'drained' if action.verb == 'drain' else 'enabled'}"
        with self._lock:
            self._actions.append(LogLine(at=time.time() - self._begun, kind="action", text=text))
        return text

    def choose(self, pair: str) -> None:
        with self._lock:
            self._pairs.choose(pair)

    def close(self) -> None:
        """Nothing is open."""

    # Internals

    def _client(self, device: str) -> CtlClient:
        for path in local_endpoints(self._folder):
            client = CtlClient(path)
            try:
                if client.call(snapshot).device == device:
                    return client
            except MrcError:
                pass
            client.close()
        raise ConfigError(f"target: {device} has gone")

    def _port(self, device: str, port: int) -> PortSnapshot | None:
        for each in self._latest:
            if each.device == device and port < len(each.ports):
                return each.ports[port]
        return None

    def _frame(self, rates: HostRates, events: list[TelemetryEvent]) -> Frame:
        goodput, load, health = [0.0] * self._planes, [], []
        by_port = {(each.device, each.port): each for each in rates.ports}
        for device in self._devices:
            for port in range(self._planes):
                rate, found = by_port.get((device, port + 1)), self._port(device, port)
                speed = max(rate.transmit_gbps, rate.receive_gbps) if rate is not None else 0.0
                goodput[port] += rate.receive_gbps if rate is not None else 0.0
                load.append(min(100, round(100 * speed / _FULL_GBPS)))
                health.append(_health(found))
        actions, self._actions = self._actions, []
        self._pairs.look(self._latest)
        return Frame(
            number=self._frames,
            at=time.time() - self._begun,
            goodput=[round(each, 3) for each in goodput],
            load=load,
            health=health,
            lost=sum(port.lost for each in self._latest for port in each.ports),
            pair=self._pairs.name,
            evs=self._pairs.evs(),
            pairs=self._pairs.lines(rates),
            events=[*(event_line(event, self._begun) for event in events), *actions],
        )


def _health(port: PortSnapshot | None) -> int:
    if port is None:
        return 3
    if not port.up:
        return 2 if port.faults == ["DISABLED"] else 3
    return 1 if port.silent or port.evs[2] > 0 else 0


def event_line(event: TelemetryEvent, begun: float) -> LogLine:
    """Return a line of the event log, on a clock that began then."""
    where = f" port {event.port}" if event.port else ""
    ev = f" EV {event.ev:#x}" if event.ev >= 0 else ""
    cause = f" ({event.cause})" if event.cause else ""
    return LogLine(
        at=event.at - begun,
        kind=event.kind,
        text=f"{event.device}{where}{ev} {event.state}{cause} {event.text}".strip(),
    )
