"""A host that is late again and again is told of once, and once more when it is in time."""

from openmrc.operations.diagnosis.witnesses import CALM_S, LateHosts


def test_lateness_is_told_when_it_begins_and_when_it_is_over() -> None:
    hosts = LateHosts()
    assert hosts.look(1.0, [3]) == ([3], [])
    assert hosts.look(1.1, [3, 4]) == ([4], [])
    assert hosts.look(2.5, [3]) == ([], [])
    assert hosts.look(1.1 + CALM_S, []) == ([], [(4, 0.0)])
    assert hosts.look(2.5 + CALM_S, []) == ([], [(3, 1.5)])
    assert hosts.look(9.0, []) == ([], [])
    assert hosts.look(9.1, [3]) == ([3], []), "a new one"
