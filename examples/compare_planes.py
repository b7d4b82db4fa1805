"""Size a fabric for 64 GPUs, lose a plane during an all-reduce, and compare 4 planes with 8: from Python alone.

Needs polars (`pip install '.[data]'` in the clone). Run it as a file, or cell by cell in a notebook.
"""

import openmrc

# %% Size it: eight planes of 100G, and what a single plane would take.
comparison = openmrc.plan(64, nic="800G", planes=8)
print(comparison.designs.select("name", "planes", "switches.total", "optics"))

# %% Run it: a ring all-reduce of 8 MiB, while plane 3 is down for 40 us.
scenario = {
    "fabric": comparison.fabric(),
    "workloads": [{"kind": "ring_all_reduce", "size": "8MiB"}],
    "faults": [{"at": "50us", "for": "40us", "down": "plane 3"}],
}
done = openmrc.simulate(scenario)
print(done)
print(done.flows.select("fct_us").describe(percentiles=[0.5, 0.99]))
print(done.faults)

# %% Compare: 4 x 200G or 8 x 100G, with the fault and without.
runs = openmrc.sweep(
    scenario,
    {"faults": [[], scenario["faults"]]},
    together=[{"fabric.planes.0.count": [4, 8], "fabric.planes.0.host_gbps": [200, 100]}],
    processes=1,
)
print(runs.select("faults", "fabric.planes.0.count", "last_finish_us", "packets.retransmitted"))
