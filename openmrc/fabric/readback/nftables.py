"""What nftables may do to packets of the fabric, read from `nft -j list ruleset` (libnftables-json(5)).

Two packets follow the chains as in the kernel: one of the fabric, to the plane's block, UDP or a tunnel, and one of
neighbour discovery (RFC 4861); everything else of them is unknown, so a match is never, maybe or always met. A rule
that may be met and drops, rejects, queues, redirects or rewrites stops packets; so does a chain that may end in `policy
drop`. Chains at `input` and `output` see only discovery, that at `forward` only the fabric, those of bridges none.
"""

import ipaddress
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from fnmatch import fnmatchcase
from typing import Any

from openmrc.errors import ConfigError

Node = dict[str, Any]
_ANY_HOOKS = ("ingress", "egress", "prerouting", "postrouting")
_OWN_HOOKS = ("input", "output")
_FAMILIES = ("ip6", "inet", "netdev")
_STOPS = ("drop", "reject", "queue", "dnat", "snat", "masquerade", "redirect", "tproxy", "synproxy", "fwd")
_HARMLESS = (
    "counter", "log", "comment", "notrack", "dup", "last", "ct helper", "ct timeout", "ct expectation", "secmark",
)  # fmt: skip
_MAY_END = ("limit", "quota", "set", "map")  # the rest of the rule is skipped above a rate, or when a set is full
_HARMLESS_KEYS = ("mark", "nftrace", "label")  # that a rule may change; rules and filters that ask for them are read
_OTHERS = ("ip", "arp", "tcp", "icmp", "igmp", "sctp", "dccp")  # headers that no packet of ours has
_IPV6 = {"nfproto": (("ipv6", 10),), "protocol": (("ip6", 0x86DD),)}
_IN, _OUT = ("iif", "iifname"), ("oif", "oifname")
_DESTINATION = {"payload": {"protocol": "ip6", "field": "daddr"}}
_DEEPEST = 16  # chains that jump into each other; the kernel's limit
_MOST_WALKS = 10_000  # of chains, each with the ports that rules before it have chosen


@dataclass(frozen=True)
class FilteredPacket:
    """What is known of a packet: hooks, headers it lacks, values that fields may have, by all their names."""

    hooks: tuple[str, ...]
    others: tuple[str, ...]
    facts: dict[str, tuple[tuple[Any, ...], ...]]
    networks: tuple[ipaddress.IPv6Network, ...]  # of its destination


def _of_fabric(block: str, sees_own: bool) -> FilteredPacket:
    next_header = (("udp", 17), ("ipv6", 41))
    facts = {**_IPV6, "l4proto": next_header, "nexthdr": next_header}
    hooks = (*_ANY_HOOKS, "forward", *(_OWN_HOOKS if sees_own else ()))
    return FilteredPacket(hooks, (*_OTHERS, "icmpv6"), facts, (ipaddress.IPv6Network(block),))


_ICMPV6 = (("ipv6-icmp", "icmpv6", 58),)
_DISCOVERY = FilteredPacket(
    (*_ANY_HOOKS, *_OWN_HOOKS), (*_OTHERS, "udp"),
    {
        **_IPV6, "l4proto": _ICMPV6, "nexthdr": _ICMPV6, "hoplimit": ((255,),),
        "type": (("nd-neighbor-solicit", 135), ("nd-neighbor-advert", 136)),
    },
    (ipaddress.IPv6Network("fe80::/10"), ipaddress.IPv6Network("ff02::/16")),
)  # fmt: skip


class Met(IntEnum):
    """Whether a packet of the fabric meets a match."""

    NEVER = 0
    MAYBE = 1
    ALWAYS = 2


@dataclass
class Ruleset:
    """The objects of a ruleset; chains, rules and sets by (family, table, name)."""

    chains: dict[tuple[str, ...], Node] = field(default_factory=dict)
    rules: dict[tuple[str, ...], list[Node]] = field(default_factory=dict)
    sets: dict[tuple[str, ...], Node] = field(default_factory=dict)


@dataclass(frozen=True)
class FilterStop:
    """A place that may stop packets: where, and of which ports; all if none is named."""

    what: str
    ports: frozenset[str]


def ruleset_of(objects: Sequence[Any]) -> Ruleset:
    """Sort the objects of `nft -j list ruleset`."""
    found = Ruleset()
    for each in objects:
        for kind, body in each.items() if isinstance(each, dict) else ():
            if not isinstance(body, dict):
                continue
            name = (str(body.get("family")), str(body.get("table")))
            if kind == "chain":
                found.chains[*name, str(body.get("name"))] = body
            elif kind == "rule":
                found.rules.setdefault((*name, str(body.get("chain"))), []).append(body)
            elif kind in ("set", "map"):
                found.sets[*name, str(body.get("name"))] = body
    return found


def stops(ruleset: Ruleset, ports: frozenset[str], block: str, sees_own: bool = False) -> list[FilterStop]:
    """Return what may stop packets to a /32 block that use these ports, or the discovery of their neighbours.

    With `sees_own`, the switch's own chains also see what a uSID is taken from (sysctl nf_hooks_lwtunnel).
    """
    found: dict[FilterStop, None] = {}
    for packet in (_of_fabric(block, sees_own), _DISCOVERY):
        for key, chain in ruleset.chains.items():
            if chain.get("hook") in packet.hooks and key[0] in _FAMILIES:
                found.update(dict.fromkeys(_Walk(ruleset, key[:2], ports, packet).base(key, chain)))
    return list(found)


class _Walk:
    """Follows one base chain of one table."""

    def __init__(self, ruleset: Ruleset, table: tuple[str, ...], ports: frozenset[str], packet: FilteredPacket) -> None:
        self.ruleset, self.table, self.ports, self.packet = ruleset, table, ports, packet
        self._found: list[FilterStop] = []
        self._walked: dict[tuple[tuple[str, ...], frozenset[str]], bool] = {}  # chains, and whether they are passed

    def base(self, key: tuple[str, ...], chain: Node) -> list[FilterStop]:
        where = chain.get("dev", ())
        devices = frozenset((where,) if isinstance(where, str) else where)  # nft 1.0 leaves out several
        named = devices & self.ports
        if devices and not named:
            return []
        if self._passes(key, named, 0) and chain.get("policy") == "drop":
            self._found.append(FilterStop(f"{' '.join(key)}: policy drop", named))
        return self._found

    def _passes(self, key: tuple[str, ...], named: frozenset[str], depth: int) -> bool:
        """Return whether a packet may reach the end of a chain, or return from it; ConfigError: too many ways there.

        A chain is walked once for the same ports: chains that jump to each other many times would be walked for ever.
        """
        if depth > _DEEPEST:
            return True
        if (key, named) not in self._walked:
            if len(self._walked) == _MOST_WALKS:
                raise ConfigError(f"nftables: table {' '.join(self.table)}: too many ways through its chains to follow")
            self._walked[key, named] = True  # for chains that lead back here, which the kernel refuses
            self._walked[key, named] = self._walk(key, named, depth)
        return self._walked[key, named]

    def _walk(self, key: tuple[str, ...], named: frozenset[str], depth: int) -> bool:
        for rule in self.ruleset.rules.get(key, ()):
            stays = self._rule(key, rule, named, depth)
            if stays is not None:
                return stays
        return True

    def _rule(self, key: tuple[str, ...], rule: Node, named: frozenset[str], depth: int) -> bool | None:
        """Follow a rule; return None if a packet may go on behind it, otherwise whether it goes back to the caller."""
        met, unknown = Met.ALWAYS, ""
        for statement in rule.get("expr", ()):
            for kind, body in statement.items() if isinstance(statement, dict) else ():
                if kind == "match":
                    one, some = self._match(body)
                    met, named = min(met, one), named | some
                elif kind == "vmap":
                    self._choose(key, rule, body, named, depth)
                    met = Met.MAYBE
                elif kind in ("jump", "goto", "return", "accept", *_STOPS) or _rewrites(kind, body):
                    return self._verdict(key, rule, (kind, body), named, met, depth)
                elif kind not in (*_HARMLESS, "mangle"):  # rates, quotas, and what is not known here
                    met, unknown = min(met, Met.MAYBE), unknown or ("" if kind in _MAY_END else kind)
                if met is Met.NEVER:
                    return None
        if unknown:
            self._stop(key, rule, named)
        return None

    def _verdict(
        self, key: tuple[str, ...], rule: Node, verdict: tuple[str, Any], named: frozenset[str], met: Met, depth: int
    ) -> bool | None:
        kind, body = verdict
        goes_back = kind == "return"
        if kind in ("jump", "goto"):
            target = str(body.get("target")) if isinstance(body, dict) else ""
            goes_back = self._passes((*self.table, target), named, depth + 1)
            if kind == "jump" and goes_back:
                return None
        elif kind not in ("accept", "return"):
            self._stop(key, rule, named)
        return goes_back if met is Met.ALWAYS else None

    def _choose(self, key: tuple[str, ...], rule: Node, body: Node, named: frozenset[str], depth: int) -> None:
        """Follow every verdict of a map whose key a packet may have."""
        for element in self._elements(body.get("data")):
            value, verdict = element if isinstance(element, list) and len(element) == 2 else (None, None)
            one, some = self._match({"op": "==", "left": body.get("key"), "right": value})
            if one is not Met.NEVER and isinstance(verdict, dict):
                for chosen in verdict.items():
                    self._verdict(key, rule, chosen, named | some, Met.MAYBE, depth)

    def _stop(self, key: tuple[str, ...], rule: Node, named: frozenset[str]) -> None:
        self._found.append(FilterStop(f"{' '.join(key)}: {text_of(rule)}", named))

    def _match(self, match: Node) -> tuple[Met, frozenset[str]]:
        """Return whether a match is met, and the ports that it names, if not all."""
        left, right, op = match.get("left"), match.get("right"), str(match.get("op"))
        payload, meta = _part(left, "payload"), _part(left, "meta")
        what = str(payload.get("field") if payload else meta.get("key"))
        if payload and payload.get("protocol") in self.packet.others:
            return Met.NEVER, frozenset()
        if meta and what in (*_IN, *_OUT):
            return self._ports(self._elements(right), op)
        if left == _DESTINATION:
            covered = max((self._covers(value) for value in self._elements(right)), default=Met.NEVER)
            return _turned(covered, op), frozenset()
        facts = self.packet.facts
        if what in facts and (meta or payload.get("protocol") in ("ip6", "icmpv6")):
            return _turned(_fact(facts[what], self._elements(right)), op), frozenset()
        return Met.MAYBE, frozenset()

    def _ports(self, names: list[Any], op: str) -> tuple[Met, frozenset[str]]:
        here = frozenset(port for port in self.ports if any(fnmatchcase(port, str(name)) for name in names))
        here = self.ports - here if op == "!=" else here
        if not here:
            return Met.NEVER, here
        return (Met.ALWAYS, frozenset()) if here == self.ports else (Met.MAYBE, here)

    def _covers(self, value: Any) -> Met:
        """Return whether an address, prefix or range of a rule has the packet's destination."""
        try:
            if isinstance(value, dict) and "range" in value:
                low, high = (int(ipaddress.IPv6Address(end)) for end in value["range"])
            else:
                prefix = value.get("prefix", {}) if isinstance(value, dict) else {"addr": value, "len": 128}
                network = ipaddress.IPv6Network((prefix.get("addr", ""), prefix.get("len", 128)), strict=False)
                low, high = int(network.network_address), int(network.broadcast_address)
        except (ValueError, TypeError):
            return Met.MAYBE
        ends = [(int(each.network_address), int(each.broadcast_address)) for each in self.packet.networks]
        if all(low <= first and high >= last for first, last in ends):
            return Met.ALWAYS
        return Met.NEVER if all(high < first or low > last for first, last in ends) else Met.MAYBE

    def _elements(self, right: Any) -> list[Any]:
        """Return the values of a set, named or not, or the single value."""
        if isinstance(right, str) and right.startswith("@"):
            named = self.ruleset.sets.get((*self.table, right[1:]), {})
            right = named.get("elem", []) if "dynamic" not in named.get("flags", ()) else [{}]
        elif isinstance(right, dict) and "set" in right:
            right = right["set"]
        values = right if isinstance(right, list) else [right]
        return [each["elem"].get("val") if isinstance(each, dict) and "elem" in each else each for each in values]


def _part(left: Any, kind: str) -> Node:
    found = left.get(kind) if isinstance(left, dict) else None
    return found if isinstance(found, dict) else {}


def _rewrites(kind: str, body: Any) -> bool:
    key = _part(body, "key")
    known = _part(key, "meta") or _part(key, "ct")
    return kind == "mangle" and known.get("key") not in _HARMLESS_KEYS


def _fact(possible: tuple[tuple[Any, ...], ...], values: list[Any]) -> Met:
    if any(isinstance(value, (dict, list)) for value in values):
        return Met.MAYBE
    met = [any(value in names for value in values) for names in possible]
    return Met.ALWAYS if all(met) else Met.MAYBE if any(met) else Met.NEVER


def _turned(met: Met, op: str) -> Met:
    """Take the operator into account: orders and bits of an address are not followed."""
    if op in ("==", "in"):
        return met
    return Met(Met.ALWAYS - met) if op == "!=" else Met.MAYBE


def text_of(rule: Node) -> str:
    """Write a rule much as `nft list ruleset` does, without counters."""
    words = [
        _statement(kind, body) for each in rule.get("expr", ()) if isinstance(each, dict) for kind, body in each.items()
    ]
    return " ".join(filter(None, words))


def _statement(kind: str, body: Any) -> str:
    if kind == "match":
        op = "" if body.get("op") in ("==", "in") else f" {body.get('op')}"
        return f"{_value(body.get('left'))}{op} {_value(body.get('right'))}"
    if kind in ("jump", "goto"):
        return f"{kind} {body.get('target')}" if isinstance(body, dict) else kind
    return "" if kind in ("counter", "log") else f"{kind} {json.dumps(body)}" if kind == "vmap" else kind


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"{{ {', '.join(map(_value, value))} }}"
    if not isinstance(value, dict) or len(value) != 1:
        return str(value)
    ((kind, body),) = value.items()
    if kind == "payload" and isinstance(body, dict):
        return f"{body.get('protocol')} {body.get('field')}"
    if kind in ("meta", "ct") and isinstance(body, dict):
        return str(body.get("key")) if kind == "meta" else f"ct {body.get('key')}"
    if kind == "prefix":
        return f"{body.get('addr')}/{body.get('len')}"
    if kind == "range":
        return "-".join(map(str, body))
    return _value(body) if kind == "set" else json.dumps(value)


def read(ruleset: Any) -> Iterator[Any]:
    """Yield the objects of the JSON that nft prints."""
    found = ruleset.get("nftables") if isinstance(ruleset, dict) else None
    yield from found if isinstance(found, list) else ()
