"""What a healthy Linux switch prints of its routes."""

from typing import Any

from openmrc.fabric.addressing.sid_tables import Action
from openmrc.fabric.export.kernel import LAST_METRIC, OWN
from openmrc.fabric.export.view import SwitchView, linux_port, port_names

UN = {"encap": "seg6local", "action": "End", "flavors": ["next-csid"], "lblen": 32, "nflen": 16}


def shown_routes(switch: SwitchView) -> list[dict[str, Any]]:
    """Return `ip -6 -j route` of a switch whose downlinks do not shift."""
    names, rows = port_names(switch.layout, linux_port), list[dict[str, Any]]()
    for prefix, action, port in switch.entries:
        if action is Action.UN:
            rows.append({"dst": prefix, "dev": OWN, **UN})
        else:
            rows.append({"dst": prefix, "dev": names[port], "gateway": switch.peer_addresses[port]})
    return [*rows, {"type": "blackhole", "dst": switch.block, "dev": "lo", "metric": LAST_METRIC}]
