from openmrc.programs.perf.pingpong import distribution


def test_a_distribution_of_a_thousand_times() -> None:
    found = distribution([float(n) for n in range(1000, -1, -1)])
    assert (found.least, found.most, found.median, found.mean) == (0, 1000, 500, 500)
    assert (found.p99, found.p999) == (990, 999)


def test_one_time_is_all_of_them() -> None:
    found = distribution([7.5])
    assert {found.least, found.most, found.median, found.mean, found.p99, found.p999} == {7.5}
    assert found.deviation == 0
