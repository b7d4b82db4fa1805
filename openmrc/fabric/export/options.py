"""Options that differ between sites: cages, versions, MTU, time, management addresses, host interface names."""

import ipaddress
from dataclasses import dataclass, field
from typing import Literal

from openmrc.errors import ConfigError
from openmrc.fabric.export.cages import Cages
from openmrc.fabric.model.port_settings import INTERFACE, Dscp, fields_of

OTHER, DATA, TRIMMED_HERE, CONTROL = 0, 3, 5, 6
QUEUE = {OTHER: 0, 1: 0, 2: 0, DATA: 3, 4: 0, TRIMMED_HERE: 6, CONTROL: 6, 7: 6}
DATA_SHARE, OTHER_SHARE = 90, 10  # per cent of the capacity that control leaves


def class_of(dscp: Dscp) -> dict[int, int]:
    data = dict.fromkeys((dscp.trimmable, dscp.trimmable_again), DATA)
    return {**data, **dict.fromkeys((dscp.control, dscp.trimmed, dscp.trimmed_last_hop), CONTROL)}


def trim_size(least: int, keep: int) -> int:
    """Return the length to which packets are trimmed: Ethernet 14, IPv6 40, `keep`; a multiple of 4."""
    return max(least, -(-(14 + 40 + keep) // 4) * 4)


LEAST_MTU = 4242  # bytes: 4,096 of payload, and the headers of the longest MRC packet
MOST_MTU = 9216  # sonic-port.yang, `mtu`
FrrVersion = Literal["8.4", "10.3", "10.7"]
HostFormat = Literal["netplan", "networkd"]
_FIRST_ADDRESS = 2  # of the management network; the gateway is 1


@dataclass(frozen=True)
class ExportOptions:
    """Parameters that an exporter cannot derive from the fabric."""

    cages: Cages = field(default_factory=Cages)
    frr: FrrVersion = "10.7"
    mtu: int = 9000  # bytes of IP packet
    trimming: bool = True
    ntp: tuple[str, ...] = ()
    management: str = ""  # prefix; switches are numbered first, then hosts; empty: DHCP
    hwsku: str = ""  # SONiC
    platform: str = ""  # SONiC
    interface: str = INTERFACE  # name of a host's port
    host_format: HostFormat = "netplan"

    def check(self) -> None:
        """Refuse values that no target accepts."""
        if not LEAST_MTU <= self.mtu <= MOST_MTU:
            raise ConfigError(
                f"MTU {self.mtu}: MRC needs {LEAST_MTU} at 4 KiB, switches take up to {MOST_MTU}; 9000 works"
            )
        self.cages.check()
        for server in self.ntp:
            try:
                ipaddress.ip_address(server)
            except ValueError:
                raise ConfigError(f"--ntp {server!r}: expected an IP address") from None
        if self.management:
            self._network()
        fields = fields_of(self.interface)
        if not fields <= {"host", "nic", "plane"} or not {"nic", "plane"} & fields:
            example = "enp{nic}s0f{plane}"
            raise ConfigError(f"interface name {self.interface!r}: write {{nic}} and {{plane}}, such as {example}")

    def interface_of(self, host: int, nic: int, plane: int) -> str:
        """Return the name of a host's port; `nic` counts within the host."""
        return self.interface.format(host=host, nic=nic, plane=plane)

    def management_address(self, index: int) -> tuple[str, str]:
        """Return (address with length, gateway) of machine n."""
        network = self._network()
        if index + _FIRST_ADDRESS >= network.num_addresses - 1:
            raise ConfigError(
                f"management network {network} has {network.num_addresses} addresses, too few for {index + 1} machines"
            )
        return f"{network[index + _FIRST_ADDRESS]}/{network.prefixlen}", str(network[1])

    def _network(self) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
        try:
            return ipaddress.ip_network(self.management)
        except ValueError as error:
            raise ConfigError(f"--management {self.management}: {error}; a prefix such as 10.91.0.0/16") from None
