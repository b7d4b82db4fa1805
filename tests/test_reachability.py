"""What counts as reached: commands and public names, never tests."""

from __future__ import annotations

from spec.reachability import functions, reached


def test_what_a_command_runs_is_reached() -> None:
    for name in (
        "programs.perf.command.perf",
        "engine.requester.transmission.next_packet",
        "live.datapath.loop.attendance.wait",
        "live.datapath.loop.iteration.take_in",
        "sim.loop.window.run_window",
    ):
        assert f"openmrc.{name}" in reached(), name


def test_variants_of_a_generic_kernel_are_reached_through_it() -> None:
    assert "openmrc.sim.transports.mrc.transport._receive" in reached()


def test_what_only_tests_call_is_not_reached() -> None:
    names = set(functions())
    assert "openmrc.programs.training.measurement.seconds_in_place" in names - reached()
