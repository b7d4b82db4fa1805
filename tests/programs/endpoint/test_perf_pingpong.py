from openmrc.programs.perf.pingpong import distribution


def test_a_distribution_of_a_thousand_times_is_halved() -> None:
    found = distribution([2.0 * n for n in range(1000, -1, -1)])
    assert (found["t_min"], found["t_max"], found["t_typical"], found["t_avg"]) == (0, 1000, 500, 500)
    assert (found["t_99"], found["t_99_9"]) == (990, 999)


def test_one_time_is_all_of_them() -> None:
    found = distribution([15.0])
    assert found.pop("t_stdev") == 0
    assert set(found.values()) == {7.5}
