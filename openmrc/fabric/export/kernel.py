"""What Linux needs beside routes, for the targets that stand on its kernel: an interface for uSIDs, sysctls, queues.

The switch's own uSIDs are on `sr0`, which has no cable, so no port that goes down removes them; FRR insists on an
interface of this name (zebra, `SEG6LOCAL` routes). It is one end of a veth pair, which every kernel has (ip-link(8)).

Queues (tc(8), tc-htb(8), tc-u32(8), tc-bfifo(8), tc-red(8)): control first, data with marks, then everything else. The
kernel does not trim: a full queue drops. The lab's ports trim by a program of their own (`openmrc.lab.port`).
"""

from functools import lru_cache

from openmrc.fabric.export.options import CONTROL, DATA, DATA_SHARE, OTHER, OTHER_SHARE, class_of
from openmrc.fabric.export.view import PortLayout, PortLook, PortName, SwitchView
from openmrc.fabric.model.port_settings import Dscp

OWN = "sr0"
_LINKS = f"link add {OWN} type veth peer name {OWN}-end\nlink set dev {OWN} up\nlink set dev {OWN}-end up\n"
SYSCTLS = (
    "net.ipv6.conf.all.forwarding = 1",  # ip-sysctl: route between ports
    "net.ipv6.conf.all.seg6_enabled = 1",  # seg6-sysctl: accept packets with a segment routing header
    "net.ipv6.conf.default.seg6_enabled = 1",
    "net.ipv6.conf.all.accept_ra = 0",  # ip-sysctl: only the routes written here
    "net.ipv6.conf.default.accept_ra = 0",
)
LAST_METRIC = 4096  # of the blackhole at the end of a block; a route without a metric has 1024, and comes first
_CLASS = {CONTROL: 10, DATA: 20, OTHER: 30}
_PACKET = 4242  # bytes: the longest MRC packet
_BURST_US = 100  # of the port's rate: what HTB sends at once when its timer was late
_LEAST_BURST = 16_000  # bytes; a few packets
_RED_FASTEST = (1 << 32) - 1  # bytes/s: iproute2 keeps the bandwidth of RED in 32 bits
_IPV6_CLASS = 0xFC  # mask: a traffic class without its ECN bits


def links(switch: SwitchView, name: PortName) -> str:
    """Return the lines for `ip -batch`, read once at boot."""
    ports = zip(_begins(switch.layout, name), switch.port_macs.values(), strict=True)
    own = "".join(f"{begin}{mac} mtu {switch.options.mtu} up\n" for begin, mac in ports)
    return f"# {switch.name}: ip -batch THIS_FILE, once\n{_LINKS}{own}"


@lru_cache(maxsize=64)
def _begins(layout: PortLayout, name: PortName) -> tuple[str, ...]:
    return tuple(f"link set dev {name(port)} address " for port in layout.ports)


def blackhole(block: str) -> str:
    """Return the line that ends a plane's block."""
    return f"route replace blackhole {block} metric {LAST_METRIC}"


@lru_cache(maxsize=64)
def sysctls(layout: PortLayout, name: PortName) -> str:
    """Return the settings for `sysctl -p`, read after the links exist."""
    own = (f"net.ipv6.conf.{name(port)}.seg6_enabled = 1" for port in layout.ports)
    return "\n".join([*SYSCTLS, *own]) + "\n"


@lru_cache(maxsize=64)
def queues(layout: PortLayout, name: PortName) -> str:
    """Return the lines for `tc -batch`, read once at boot."""
    return "".join(line + "\n" for port in layout.ports for line in _queues(port, name(port)))


def _queues(port: PortLook, device: str) -> list[str]:
    rate, limit = port.settings.rate, port.settings.drop_above
    left = rate - rate // 2
    shares = {CONTROL: rate // 2, DATA: left * DATA_SHARE // 100, OTHER: left * OTHER_SHARE // 100}
    burst = max(_LEAST_BURST, rate * _BURST_US // 8_000_000)
    shared = f"ceil {rate}bit burst {burst} cburst {burst} quantum {2 * _PACKET}"
    lines = [f"qdisc add dev {device} root handle 1: htb default {_CLASS[OTHER]}"]
    lines.append(f"class add dev {device} parent 1: classid 1:1 htb rate {rate}bit {shared}")
    for priority, (traffic, share) in enumerate(shares.items()):
        begin = f"class add dev {device} parent 1:1 classid 1:{_CLASS[traffic]}"
        lines.append(f"{begin} htb rate {share}bit {shared} prio {priority}")
    lines.append(f"qdisc add dev {device} parent 1:{_CLASS[CONTROL]} handle 11: bfifo limit {limit}")
    lines.append(_data_queue(port, device))
    lines.append(f"qdisc add dev {device} parent 1:{_CLASS[OTHER]} handle 13: bfifo limit {limit}")
    return [
        *lines,
        *filters(device, port.settings.dscp, {traffic: f"1:{_CLASS[traffic]}" for traffic in (CONTROL, DATA)}),
    ]


def filters(device: str, dscp: Dscp, into: dict[int, str]) -> list[str]:
    """Return the lines that map DSCPs to the classes of `into`."""
    return [
        f"filter add dev {device} parent 1: protocol ipv6 pref {value + 1} u32 "
        f"match ip6 priority {value << 2:#x} {_IPV6_CLASS:#x} classid {into[traffic]}"
        for value, traffic in class_of(dscp).items()
        if traffic in into
    ]


def _data_queue(port: PortLook, device: str) -> str:
    """RED marks between two lengths; tc-red(8) only takes the probability at the upper one.

    RED judges by an average of the queue; thresholds here are meant for the queue itself. `burst` is therefore the
    least that iproute2 can turn into a weight, which makes it 1/2 or 1/4 (`tc_red_eval_ewma`), and `avpkt` is half the
    lower threshold at most: iproute2 finds no weight for packets above it. `bandwidth` is no limit: it says how fast
    the average falls while the port is idle. For faster ports the 34 Gb/s that iproute2 can express do as well: with
    such weights the average is gone after a few packet times either way.
    """
    settings = port.settings
    begin = f"qdisc add dev {device} parent 1:{_CLASS[DATA]} handle 12:"
    if not settings.mark_high:
        return f"{begin} bfifo limit {settings.drop_above}"
    packet = min(_PACKET, settings.mark_low // 2)
    burst, bandwidth = settings.mark_low // packet + 1, min(settings.rate, 8 * _RED_FASTEST)
    return (
        f"{begin} red limit {settings.drop_above} min {settings.mark_low} max {settings.mark_high} avpkt {packet} "
        f"burst {burst} bandwidth {bandwidth}bit probability 1.0 ecn"
    )
