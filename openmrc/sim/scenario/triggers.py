"""The triggers of a `.cm` file as a plan: the end of one flow starts others.

- oneshot: its activation starts all flows that name it; only one flow may activate it.
- multishot: each activation starts the next flow that names it, in file order.
- barrier: the activation number `count` starts all flows that name it.

A flow that could never start (its trigger is never activated, the barrier needs more activations than exist, or flows
wait for each other in a cycle) is an error; htsim ends such a run without one.
"""

from collections.abc import Callable

import numpy as np

from openmrc.sim.scenario.matrix import ConnectionMatrix
from openmrc.sim.scenario.matrix_line import Trigger, refuse
from openmrc.sim.workloads.joined import never_started
from openmrc.sim.workloads.plan import Ids, WorkloadGraph


def plan_of(matrix: ConnectionMatrix) -> WorkloadGraph:
    """Return the flows of a matrix in file order, and the gates of its triggers."""
    made = WorkloadGraph(matrix.hosts)
    made.messages(matrix.source, matrix.destination, matrix.size, np.maximum(matrix.start, 0))
    made.connect(matrix.connection)
    _refuse_undeclared(matrix)
    rows_of = [_by_value(column) for column in (matrix.trigger, matrix.send_done, matrix.recv_done)]
    for identity, trigger in matrix.triggers.items():
        _add(made, matrix, identity, trigger, *(rows(identity) for rows in rows_of))
    _refuse_stuck(made, matrix)
    return made


def _refuse_undeclared(matrix: ConnectionMatrix) -> None:
    declared = np.array(sorted(matrix.triggers), np.int64)
    for name in ("trigger", "send_done", "recv_done"):
        column: Ids = getattr(matrix, name)
        unknown = np.flatnonzero((column > 0) & ~np.isin(column, declared))
        if len(unknown):
            row = int(unknown[0])
            refuse(matrix.path, int(matrix.line[row]), name, column[row], "an id that a trigger line declares")


def _by_value(column: Ids) -> Callable[[int], Ids]:
    """Return what finds the rows of a column that hold a value."""
    order = np.argsort(column, kind="stable")
    ordered = column[order]
    return lambda value: order[slice(*np.searchsorted(ordered, [value, value + 1]))]


def _add(
    made: WorkloadGraph,
    matrix: ConnectionMatrix,
    identity: int,
    trigger: Trigger,
    waiting: Ids,
    sent: Ids,
    received: Ids,
) -> None:
    """Add the gates of one trigger: one for all its flows, or one for each in turn.

    A single activation needs no gate, whose signal would cost two link latencies instead of none or one.
    """
    activations = len(sent) + len(received)
    _check(matrix, identity, trigger, len(waiting), activations)
    if not len(waiting):
        return
    if activations == 1:
        made.follow(np.concatenate([sent, received]), waiting, acknowledged=len(sent) == 1)
        return
    turns = range(len(waiting)) if trigger.kind == "multishot" else range(1)
    for turn in turns:
        gate = made.gate(turn + 1 if trigger.kind == "multishot" else trigger.count)
        made.follow(sent, gate, acknowledged=True)
        made.follow(received, gate)
        made.follow(gate, waiting[turn : turn + 1] if trigger.kind == "multishot" else waiting)


def _check(matrix: ConnectionMatrix, identity: int, trigger: Trigger, waiting: int, activations: int) -> None:
    shown = f"{trigger.kind} {identity}"
    if not waiting or not activations:
        what = "no flow is started by it" if activations else "no flow activates it"
        if waiting:
            refuse(matrix.path, trigger.line, shown, what, "a flow with send_done_trigger or recv_done_trigger")
        matrix.warnings.append(f"{matrix.path}:{trigger.line}: {shown} does nothing: {what}")
    elif trigger.kind == "oneshot" and activations > 1:
        refuse(matrix.path, trigger.line, shown, f"activated by {activations} flows", "one flow that activates it")
    elif trigger.kind == "barrier" and trigger.count > activations:
        refuse(matrix.path, trigger.line, shown, f"count {trigger.count}", f"at most {activations}, the activations")
    elif trigger.kind == "multishot" and waiting > activations:
        refuse(matrix.path, trigger.line, shown, f"{waiting} flows", f"at most {activations}, the activations")
    surplus = activations - (waiting if trigger.kind == "multishot" else trigger.count)
    if waiting and surplus > 0:
        matrix.warnings.append(f"{matrix.path}:{trigger.line}: {shown}: {surplus} activations more than needed")


def _refuse_stuck(made: WorkloadGraph, matrix: ConnectionMatrix) -> None:
    before, after, _ = made.edges()
    stuck = never_started(made.count, before, after, made.nodes().need)
    if len(stuck):
        row = int(stuck[0])
        flow = f"{matrix.source[row]}->{matrix.destination[row]} id {matrix.connection[row]}"
        expected = f"no cycle of triggers ({int((stuck < len(matrix)).sum())} flows wait in one)"
        refuse(matrix.path, int(matrix.line[row]), "trigger", flow, expected)
