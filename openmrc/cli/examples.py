"""Two examples of each command, printed at the end of its help. A test runs or parses each."""

from __future__ import annotations

_FABRIC = "gpus-1024"  # fabrics that ship with the package
_LAB = "lab"

EXAMPLES: dict[str, tuple[str, str]] = {
    "demo": ("mrc demo", "mrc demo --size 64MiB --no-simulation"),
    "send": ("mrc send model.bin 10.0.0.2 --token TOKEN", "mrc send --planes 4 a.bin b.bin 127.0.0.1"),
    "recv": ("mrc recv --out incoming --once", "mrc recv --planes 4 --once"),
    "perf": ("mrc perf --planes 4", "mrc perf --planes 4 127.0.0.1 -s 1M -D 5"),
    "collperf": ("mrc collperf all_reduce -n 2", "mrc collperf all_gather -n 4 -b 1M -e 64M"),
    "train explain": ("mrc train explain rank0.flight rank1.flight", "mrc train explain rank0.flight --step 12 --json"),
    "ev expand": ("mrc ev expand ev/udp.yaml", "mrc ev expand ev/srv6_generated.yaml --count 8 --seed 7"),
    "ev show": ("mrc ev show ev/srv6_explicit.yaml", "mrc ev show ev/udp.yaml --json"),
    "decode": ("mrc decode run.pcapng", "mrc decode run.pcapng --json --limit 10"),
    "clause": ("mrc clause 7.5.2", "mrc clause sack-bitmap --json"),
    "conform": ("mrc conform --list", "mrc conform --virtual 7.5.*"),
    "plan": ("mrc plan --gpus 16384 --planes 8", "mrc plan --gpus 8192 --cheapest --max-hops 3"),
    "plan job": (
        "mrc plan job --gpus 16384 --jobs 20",
        "mrc plan job --gpus 16384 --model moe --networks mrc,roce --out runs/moe",
    ),
    "sim ask": ("mrc sim ask", "mrc sim ask flaps --gpus 64 --save flaps"),
    "sim run": ("mrc sim run demo", "mrc sim run step-under-flaps-128 --threads 2 --out runs/flaps"),
    "sim sweep": ("mrc sim sweep paper/incast-victim-sweep", "mrc sim sweep sweep.yaml --processes 2 --json"),
    "sim compare": (
        "mrc sim compare step-under-flaps-128 step-under-flaps-roce-128",
        "mrc sim compare mrc.yaml roce.yaml --out runs/both --json",
    ),
    "sim schema": ("mrc sim schema > scenario.schema.json", "mrc sim schema --json"),
    "fabric build": (f"mrc fabric build {_LAB} --out tables", f"mrc fabric build {_FABRIC} --no-text --json"),
    "fabric show": (f"mrc fabric show {_FABRIC}", f"mrc fabric show {_LAB} p0-t0-00"),
    "fabric path": (f"mrc fabric path {_LAB} h0 h3", f"mrc fabric path {_LAB} h0 h3 --json"),
    "fabric verify": (f"mrc fabric verify {_FABRIC}", f"mrc fabric verify {_LAB} --without p0-t1-03"),
    "fabric profile": (f"mrc fabric profile {_LAB} h0 h3", f"mrc fabric profile {_LAB} h0 h3 --json"),
    "fabric export": (
        f"mrc fabric export {_LAB} --to frr --out configs",
        f"mrc fabric export {_LAB} --to sonic --switch p0-t0-00",
    ),
    "fabric diff": (f"mrc fabric diff {_LAB} p0-t0-00 routes.json", f"mrc fabric diff {_LAB} dumps --json"),
    "fabric cables": (f"mrc fabric cables {_LAB}", f"mrc fabric cables {_FABRIC} --out cables"),
    "fabric cabled": (f"mrc fabric cabled {_LAB} --lldp dumps", f"mrc fabric cabled {_LAB} --lldp dumps --json"),
    "fabric racks": (f"mrc fabric racks {_LAB} --out racks", f"mrc fabric racks {_FABRIC} --out racks --json"),
    "fabric bom": (f"mrc fabric bom {_FABRIC}", f"mrc fabric bom {_LAB} --json"),
    "fabric netbox": (f"mrc fabric netbox {_LAB} --out netbox", f"mrc fabric netbox {_LAB} --out netbox --site berlin"),
    "fabric grow": (f"mrc fabric grow {_LAB} larger.yaml", f"mrc fabric grow {_LAB} larger.yaml --json"),
    "fabric page": (f"mrc fabric page {_LAB} --out fabric.html", f"mrc fabric page {_FABRIC} --out fabric.html --json"),
    "fabric schema": ("mrc fabric schema > fabric.schema.json", "mrc fabric schema --json"),
    "lab up": (f"mrc lab up {_LAB}", "mrc lab up my-fabric.yaml --json"),
    "lab down": ("mrc lab down", "mrc lab down my-lab --json"),
    "lab list": ("mrc lab list", "mrc lab list --json"),
    "lab status": ("mrc lab status", "mrc lab status my-lab --json"),
    "lab exec": ("mrc lab exec h0 -- mrc recv --once", "mrc lab exec p0-t0-00 -- ip -6 route"),
    "lab fault": ('mrc lab fault "down: h0 port 1"', "mrc lab fault --clear"),
    "lab compare": ("mrc lab compare h0 h3", "mrc lab compare h0 h3 --json"),
    "run": ("mrc run --planes 10.0.0.1,10.0.1.1 ib_write_bw", "mrc run --planes 4 -- ib_write_bw 127.0.0.1"),
    "native": ("mrc native", "mrc native --json"),
    "warm": ("mrc warm", "mrc warm --json"),
    "doctor": ("mrc doctor", "mrc doctor --json"),
}
