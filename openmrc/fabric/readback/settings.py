"""Sysctls of a switch that may keep packets from their routes, compared with the kernel's own values.

`HARMLESS` are those of the kernel's documentation (ip-sysctl) that touch no forwarded packet and no discovery of a
neighbour. Any other one that differs from a namespace that nobody has changed counts, known here or not.
"""

from __future__ import annotations

from collections.abc import Mapping

from openmrc.fabric.readback.forwarding import mtu_too_small

HARMLESS = frozenset((
    "accept_dad", "accept_ra", "accept_ra_defrtr", "accept_ra_from_local", "accept_ra_min_hop_limit",
    "accept_ra_min_lft", "accept_ra_mtu", "accept_ra_pinfo", "accept_ra_rt_info_max_plen", "accept_ra_rt_info_min_plen",
    "accept_ra_rtr_pref", "accept_redirects", "accept_source_route", "addr_gen_mode", "autoconf", "dad_transmits",
    "disable_policy", "enhanced_dad", "force_mld_version", "force_tllao", "forwarding", "hop_limit", "ioam6_id",
    "ioam6_id_wide", "keep_addr_on_down", "max_addresses", "max_desync_factor", "mldv1_unsolicited_report_interval",
    "mldv2_unsolicited_report_interval", "ndisc_notify", "ndisc_tclass", "optimistic_dad", "ra_defrtr_metric",
    "ra_honor_pio_life", "ra_honor_pio_pflag", "regen_max_retry", "regen_min_advance", "router_probe_interval",
    "router_solicitation_delay", "router_solicitation_interval", "router_solicitation_max_interval",
    "router_solicitations", "seg6_enabled", "stable_secret", "suppress_frag_ndisc", "temp_prefered_lft",
    "temp_valid_lft", "use_oif_addrs_only", "use_optimistic", "use_tempaddr",
    "anycast_delay", "app_solicit", "base_reachable_time", "base_reachable_time_ms", "delay_first_probe_time",
    "gc_stale_time", "interval_probe_time_ms", "locktime", "mcast_resolicit", "proxy_delay", "proxy_qlen",
))  # fmt: skip
_MTU = "mtu"


def unusual(found: Mapping[str, str], defaults: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the settings that differ; `defaults` has those of every port as `default`, of its neighbours as `lo`."""
    shown: dict[str, tuple[str, ...]] = {}
    for key, value in found.items():
        begin, _, last = key.rpartition(".")
        kind = begin.rpartition(".")[0] or begin
        if last == _MTU and key not in defaults:
            differs = mtu_too_small(value)
        else:
            known = (f"{kind}.default.{last}", f"{kind}.lo.{last}", key)
            differs = value != next((defaults[each] for each in known if each in defaults), value)
        if differs:
            shown[key] = (value,)
    return shown
