"""Changes to a switch's namespace, drawn by seed, and datagrams as their oracle.

Each is a list of commands for the namespace of one switch of plane 0. Some kill packets, some do not: only the
datagrams say which. What a kernel refuses (a missing module) is drawn again.
"""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from openmrc.fabric.addressing.paths import path
from openmrc.fabric.addressing.sid_tables import Action
from openmrc.fabric.export.view import SwitchView, linux_port, view
from openmrc.lab.layout import EXPORT, Lab
from openmrc.lab.namespaces import inside, namespace
from tests.lab.sockets import drain, mark, udp

PORT = 4791
DATAGRAMS = 200
_SIZES = (64, 1000, 4000)  # bytes of payload, up to an MRC packet
_DSCPS = (4, 46)  # trimmable data, control
_PAUSE_S = 0.01  # between rounds, so that no queue is long
_PATIENCE_S = 30
_BLOCK = "fcbb:bb00::/32"
_NOWHERE = ("blackhole", "unreachable", "prohibit", "throw")
_VALUES = ("0", "1", "2", "-1", "1280", "100000")

Command = Sequence[str]


@dataclass(frozen=True)
class Mutation:
    """Commands for the namespace of one switch."""

    kind: str
    switch: str
    commands: tuple[tuple[str, ...], ...]

    def __str__(self) -> str:
        return f"{self.kind} at {self.switch}: {'; '.join(' '.join(each) for each in self.commands)}"


class Draw:
    """Draws mutations of a lab."""

    def __init__(self, lab: Lab, seed: int) -> None:
        self.lab, self.random = lab, random.Random(seed)
        names = [each for each in map(lab.topology.name, range(lab.topology.nics, lab.topology.nodes)) if "p0-" in each]
        self._views = [view(lab.plan, lab.topology.node_named(name), EXPORT) for name in names]
        self._kinds: list[Callable[[SwitchView], list[str]]] = [
            self._route, self._rule, self._filter, self._policy,
            self._setting, self._link, self._neighbour, self._queue,
        ]  # fmt: skip

    def one(self, number: int) -> Mutation:
        """Return a mutation; the kinds take turns."""
        kind = self._kinds[number % len(self._kinds)]
        switch = self.random.choice(self._views)
        lines = kind(switch)
        return Mutation(kind.__name__[1:], switch.name, tuple(tuple(_words(line)) for line in lines))

    def _port(self, switch: SwitchView) -> str:
        return linux_port(self.random.choice(switch.layout.ports))

    def _route(self, switch: SwitchView) -> list[str]:
        pick = self.random.choice
        prefix, gateway, number = pick(switch.routes)
        other = pick([each for each in switch.routes if each[2] != number])
        own = pick([each for each, action, _ in switch.entries if action is Action.UN])
        way, bits = f"via {gateway} dev p{number}", pick((56, 64, 80, 96))
        longer = f"{prefix.removesuffix('::/48')}:{pick((0x1000, 0x1001, 0x2000, 0xE000)):x}::/{bits}"
        return pick(
            [
                [f"ip -6 route replace {prefix} encap seg6 mode encap segs {other[0].removesuffix('/48')} {way}"],
                [f"ip -6 route replace {prefix} encap seg6 mode inline segs {other[0].removesuffix('/48')} {way}"],
                [f"ip -6 route replace {pick(_NOWHERE)} {prefix}", f"ip -6 route del {prefix} {way}"],
                [f"ip -6 route add {pick(_NOWHERE)} {longer}"],
                [f"ip -6 route add {longer} via {other[1]} dev p{other[2]}"],
                [f"ip -6 route replace {prefix} via {other[1]} dev p{other[2]}"],
                [f"ip -6 route replace {prefix} via fe80::dead dev p{number}"],
                [f"ip -6 route replace {prefix} {way} mtu lock {pick((1280, 1500))}"],
                [f"ip -6 route replace {prefix} {way} mtu {pick((1280, 9000))}"],
                [f"ip -6 route replace {prefix} {way} expires {pick((1, 1000))}", "sleep 2"],
                [f"ip -6 route replace {prefix} {way} hoplimit 1"],
                [f"ip nexthop add id 9 via {other[1]} dev p{other[2]}", f"ip -6 route replace {prefix} nhid 9"],
                ["ip -6 nexthop add id 9 blackhole", f"ip -6 route replace {prefix} nhid 9"],
                [f"ip -6 route add {prefix} via {other[1]} dev p{other[2]} metric {pick((1, 2000))}"],
                [f"ip -6 route append {prefix} via {other[1]} dev p{other[2]}"],
                [f"ip -6 route del {prefix}"],
                [f"ip -6 route del {own}"],
                [f"ip -6 route replace {own} encap seg6local action End dev sr0"],
                [f"ip -6 route replace {own} encap seg6local action End.DT6 table 254 dev sr0"],
                [f"ip -6 route replace {own} encap seg6local action End flavors next-csid lblen 32 nflen 32 dev sr0"],
                [f"ip -6 route add local {pick((prefix, own, longer))} dev lo table local"],
                [f"ip -6 address add {prefix.removesuffix('/48')}{pick(('1/128', '9/48'))} dev lo nodad"],
                [f"ip -6 route add {prefix} from 2001:db8::/32 {way}"],
                [f"ip -6 route add {pick(_NOWHERE)} {prefix} from fd00::/8"],
                ["ip -6 route add default via fe80::dead dev p0"],
                ["ip -6 route add blackhole 2001:db8::/32"],
                [f"ip -6 route add {pick(_NOWHERE)} fcbb:bb00:7777::/48"],
                ["ip -6 route del fe80::/64 dev p0", f"ip -6 route add blackhole fe80::/{pick((10, 64))}"],
                [f"ip -6 route del {_BLOCK}"],
            ]
        )

    def _rule(self, switch: SwitchView) -> list[str]:
        pick = self.random.choice
        prefix, port = pick(switch.routes)[0], self._port(switch)
        which = pick(
            (f"to {prefix}", f"iif {port}", "from fd00::/8", "fwmark 0/1", "ipproto udp dport 4791", "tos 0x10")
        )
        before = f"ip -6 rule add {which} priority {pick((5, 40000))}"
        return pick(
            [
                [f"{before} {pick(('blackhole', 'unreachable', 'prohibit'))}"],
                [f"{before} lookup 77"],
                [f"ip -6 route add {pick(_NOWHERE)} {pick((prefix, 'default'))} table 77", f"{before} lookup 77"],
                [f"{before} lookup main suppress_prefixlength {pick((0, 48))}"],
                [f"{before} lookup main"],
                [f"{before} goto 32766"],
                ["ip -6 rule del lookup main"],
                ["ip -6 rule del lookup main", f"ip -6 rule add to {prefix} lookup main"],
                ["ip -6 rule del lookup local"],
                ["ip -6 rule del lookup local", "ip -6 rule add lookup local priority 40000"],
                ["ip -6 rule add from 2001:db8::/32 blackhole"],
                ["ip -6 rule add not from all blackhole"],
                [f"ip -6 rule add not to {prefix} blackhole"],
            ]
        )

    def _filter(self, switch: SwitchView) -> list[str]:
        pick = self.random.choice
        port, prefix = self._port(switch), pick(switch.routes)[0]
        hook = pick(("prerouting", "forward", "postrouting", "input", "output", "ingress", "egress"))
        family = (
            "netdev" if hook == "egress" else pick(("ip6", "inet")) if hook != "ingress" else pick(("netdev", "inet"))
        )
        device = f"device {port} " if hook in ("ingress", "egress") else ""
        where = pick((
            "", "", f"ip6 daddr {prefix}", f"ip6 daddr {_BLOCK}", "udp dport 4791", "meta l4proto udp",
            "ip6 hoplimit 62",
            "ip6 dscp 46", "ip6 dscp af11", "meta length > 1500", "numgen random mod 10 == 0", "ip6 saddr fd00::/8",
            "tcp dport 22", "icmpv6 type nd-neighbor-solicit", "ct state new", "ct state invalid", "udp checksum 0",
            "@nh,0,4 6", "meta mark 0", "pkttype host", "fib daddr type unicast", "ip6 daddr 2001:db8::/32",
        ))  # fmt: skip
        what = pick((
            "drop", "reject", "accept", "counter", "ip6 hoplimit set 1", "ip6 hoplimit set 64",
            "@nh,1600,16 set 0xdead",
            "@nh,448,16 set 0xbeef", "@th,16,16 set 1", "ip6 daddr set 2001:db8::1", "ip6 saddr set 2001:db8::1",
            "ip6 dscp set cs7", "ip6 ecn set ce", "ip6 flowlabel set 7", "udp dport set 9", "meta mark set 7",
            "meta priority set 1:10", "meta pkttype set other", "notrack", "queue num 7", "limit rate 5/second drop",
            "limit rate over 5/second drop", "quota over 2000 bytes drop", "ct mark set 3", "log", "return",
            "dup to 2001:db8::1", "jump other", "meta nftrace set 1", "ip6 length set 90", "ct count over 1 drop",
        ))  # fmt: skip
        policy = pick(("accept", "accept", "accept", "drop"))
        table = (
            f"table {family} x {{ chain other {{ counter drop; }}\nchain c "
            f"{{ type filter hook {hook} {device}priority {pick((-300, -150, 0, 100))}; policy {policy}; "
            f"{where} {what}\n}}\n}}"
        )
        return [f"nft|{table}"]

    def _policy(self, switch: SwitchView) -> list[str]:
        pick = self.random.choice
        way, to = pick(("fwd", "fwd", "in", "out")), pick((_BLOCK, pick(switch.routes)[0], "::/0", "2001:db8::/32"))
        crypt = "proto esp spi 7 reqid 7 mode tunnel"
        return pick(
            [
                [f"ip xfrm policy add dir {way} dst {to} action block"],
                [f"ip xfrm policy add dir {way} dst {to} proto udp action block"],
                [f"ip xfrm policy add dir {way} dst {to} action allow"],
                [f"ip xfrm policy add dir {way} src ::/0 dst {to} tmpl src fd00::1 dst fd00::2 proto esp mode tunnel"],
                [f"ip xfrm policy setdefault {pick(('in', 'fwd', 'out'))} block"],
                [f"ip xfrm state add src fd00::1 dst fd00::2 {crypt} enc aes 0x{'00' * 16}"],
            ]
        )

    def _setting(self, switch: SwitchView) -> list[str]:
        pick, port = self.random.choice, self._port(switch)
        with inside(namespace(self.lab.name, switch.name)):
            said = subprocess.run(["sysctl", "-N", "-a"], capture_output=True, text=True, check=False).stdout.split()
        begins = (f"net.ipv6.conf.{port}.", "net.ipv6.conf.all.", f"net.ipv6.neigh.{port}.")
        keys = [key for key in said if key.startswith(begins)]
        others = [key for key in said if key.startswith("net.ipv6.") and ".conf." not in key]
        key = pick(keys if self.random.random() < 0.8 else others)
        wanted = (f"{begins[0]}mtu", f"{begins[0]}disable_ipv6", f"{begins[1]}forwarding")
        return [f"sysctl -qw {key if self.random.random() < 0.7 else pick(wanted)}={pick(_VALUES)}"]

    def _link(self, switch: SwitchView) -> list[str]:
        pick, port = self.random.choice, self._port(switch)
        return pick([
            [f"ip link set {port} down"],
            [f"ip link set {pick((port, 'sr0', 'lo'))} down", f"ip link set {pick((port, 'sr0', 'lo'))} up"],
            [f"ip link set {port} mtu {pick((1280, 1500, 2000, 4300, 8999, 9216))}"],
            [f"ip link set {port} address 02:00:00:00:00:99"],
            [f"ip link set {port} arp off"],
            [f"ip link set {port} multicast off"],
            [f"ip link set {port} promisc on"],
            [f"ip link set {port} txqueuelen {pick((1, 10))}"],
            ["ip link add other type bridge", f"ip link set {port} master other"],
            ["ip link add other type vrf table 77", f"ip link set {port} master other"],
            [f"ip link add other link {port} type macvlan mode {pick(('passthru', 'bridge', 'vepa'))}",
             "ip link set other up"],
            [f"ip link add other link {port} type vlan id 7", "ip link set other up"],
            [f"ip link add other link {port} type ipvlan mode {pick(('l2', 'l3', 'l3s'))}", "ip link set other up"],
            [f"ip link add other link {port} type macsec encrypt on", "ip link set other up"],
            [f"ip link set {port} down", f"ip link set {port} name other", "ip link set other up"],
            [f"ip link set {port} mode dormant", f"ip link set {port} state dormant"],
            [f"ip -6 address flush dev {port}"],
            [f"ip -6 address add fd77::1/64 dev {port} nodad"],
            ["ip link del sr0"],
            [f"ip link set {port} alias other"],
            [f"ip link set {port} addrgenmode eui64"],
        ])  # fmt: skip

    def _neighbour(self, switch: SwitchView) -> list[str]:
        pick = self.random.choice
        number, address = pick(list(switch.peer_addresses.items()))
        here, right = f"{address} dev p{number}", switch.peer_mac(number)
        wrong = pick(("02:00:00:00:00:99", switch.mac, "ff:ff:ff:ff:ff:ff"))
        state = pick(("permanent", "reachable", "stale", "noarp", "delay", "probe"))
        return pick(
            [
                [f"ip -6 neigh replace {here} lladdr {wrong} nud {state}"],
                [f"ip -6 neigh replace {here} lladdr {right} nud {state}"],
                [f"ip -6 neigh replace {here} nud {pick(('failed', 'none', 'incomplete'))}"],
                [f"ip -6 neigh del {here}"],
                [f"ip -6 neigh del {here}", f"ip -6 neigh add proxy {address} dev p{number}"],
                [f"ip -6 neigh add fe80::99 lladdr {wrong} dev p{number} nud permanent"],
                [f"ip -6 neigh del {here}", f"sysctl -qw net.ipv6.neigh.p{number}.mcast_solicit=0"],
            ]
        )

    def _queue(self, switch: SwitchView) -> list[str]:
        pick, port = self.random.choice, self._port(switch)
        queue = pick((
            "netem loss 50%", "netem corrupt 60%", "netem delay 1ms", "netem duplicate 50%", "netem limit 1", "netem",
            "tbf rate 8kbit burst 5000 limit 5000", "tbf rate 1gbit burst 100000 limit 100000", "pfifo limit 1",
            "pfifo limit 1000", "bfifo limit 1000", "bfifo limit 1000000", "fq_codel limit 1", "fq_codel", "sfq", "fq",
            "prio", "blackhole", "plug", "codel limit 1", "red limit 400000 min 30000 max 90000 avpkt 1000",
            "choke limit 1 min 1 max 2", "gred", "teql0", "pfifo_fast", "noqueue", "etf", "cake bandwidth 8kbit",
        ))  # fmt: skip
        where = pick(("root", "parent 1:10", "parent 1:20"))
        rate, ceil = pick(("8bit", "8kbit", "50mbit", "1gbit")), pick(("8kbit", "100mbit", "1gbit"))
        act = pick((
            "action drop", "action pass", "action police rate 8kbit burst 5000 drop",
            "action mirred egress redirect dev lo",
            "action gact pass random determ drop 3", "action pedit ex munge ip6 hoplimit set 1", "action continue",
            "action skbedit ptype otherhost", "action skbedit mark 7", "action skbedit priority 1:10",
            "action csum udp",
            "action vlan push id 7", "action mirred egress mirror dev lo", "action goto chain 9", "action trap",
            "action tunnel_key unset", "action simple sdata x", "action mpls push label 7",
            "action sample rate 2 group 1",
        ))  # fmt: skip
        match = pick((
            "matchall", "u32 match u32 0 0", "flower", "flower ip_proto udp", "flower dst_ip fcbb:bb00::/32",
            "flower dst_ip 2001:db8::/32", "flower ip_proto tcp", "basic match 'u32(u32 0 0 at 0)'",
        ))  # fmt: skip
        kinds = [
            [f"tc qdisc replace dev {port} {where} {queue}"],
            [f"tc class change dev {port} parent 1:1 classid {pick(('1:10', '1:20'))} htb rate {rate} ceil {ceil}"],
            [f"tc class change dev {port} parent 1: classid 1:1 htb rate {ceil} ceil {ceil}"],
            [f"tc qdisc del dev {port} root"],
            [f"tc qdisc del dev {port} clsact"],
            [f"tc filter add dev {port} {pick(('ingress', 'egress'))} pref 7 protocol {pick(('ipv6', 'all', 'ip'))} "
             f"{match} {act}"],
            [f"tc filter add dev {port} parent 1: pref 7 protocol ipv6 {match} "
             f"classid {pick(('1:10', '1:20', '1:77'))}"],
        ]  # fmt: skip
        return pick([*kinds, kinds[0], kinds[5], kinds[5]])


def _words(line: str) -> list[str]:
    if line.startswith("nft|"):
        return ["nft", line.removeprefix("nft|")]
    return line.split(" ")


def apply(lab: Lab, mutation: Mutation) -> str:
    """Run the commands; return what the kernel says where it refuses one."""
    for command in mutation.commands:
        with inside(namespace(lab.name, mutation.switch)):
            done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
        if done.returncode:
            return f"{' '.join(command)}: {done.stderr.strip()}"
    return ""


def arrived(lab: Lab) -> int:
    """Send 200 datagrams over all paths of plane 0, of three sizes and two classes; return how many arrive intact."""
    nics = range(lab.topology.nics)
    flows = [(a, b, way) for a in nics for b in nics if a != b for way in lab.ways(0, a, b)]
    with ExitStack() as stack:
        senders = [
            stack.enter_context(udp(namespace(lab.name, f"h{nic}"), lab.plan.nic_address(0, nic), 5050)) for nic in nics
        ]
        receivers = [
            stack.enter_context(udp(namespace(lab.name, f"h{nic}"), lab.plan.nic_address(0, nic), PORT)) for nic in nics
        ]
        sent: list[set[bytes]] = [set() for _ in nics]
        for number in range(DATAGRAMS):
            a, b, way = flows[number % len(flows)]
            payload = f"{number} {a} {b} ".encode().ljust(_SIZES[number // len(flows) % len(_SIZES)], b".")
            mark(senders[a], _DSCPS[number // len(flows) % len(_DSCPS)])
            sent[b].add(payload)
            try:
                senders[a].sendto(payload, (path(lab.plan, a, b, way).address, PORT))
            except OSError:  # the kernel may have been told of a smaller MTU
                continue
            if number % len(flows) == 0:
                time.sleep(_PAUSE_S)
        return sum(
            len({each.payload for each in drain(receiver)} & wanted)
            for receiver, wanted in zip(receivers, sent, strict=True)
        )
