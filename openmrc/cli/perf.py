"""`mrc perf`: bandwidth and latency between two processes; a server without HOST, a client with one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from openmrc.cli import transfer_options as options
from openmrc.errors import UsageError

_MOST = 1 << 23  # bytes; where perftest's --all ends


def perf(
    host: Annotated[str | None, typer.Argument(metavar="[HOST]", help="Where the server runs; without: be it.")] = None,
    port: Annotated[int, typer.Option("-p", "--port", min=0, max=65535, help="TCP port of the server.")] = 18515,
    iterations: Annotated[int | None, typer.Option("-n", "--iters", min=1, help="Writes (default: 5000).")] = None,
    size: Annotated[
        str | None, typer.Option("-s", "--size", help="Bytes, such as 64K (default: 65536, --lat: 2).")
    ] = None,
    mtu: options.Mtu = 0,
    all_sizes: Annotated[bool, typer.Option("-a", "--all", help="Sizes from 2 (or --min-size) to 8M (or -s).")] = False,
    both_ways: Annotated[bool, typer.Option("-b", "--bidirectional", help="Both ends write.")] = False,
    duration: Annotated[float | None, typer.Option("-D", "--duration", min=0.01, help="Seconds, not writes.")] = None,
    queue_pairs: Annotated[int, typer.Option("-q", "--qp", min=1, max=64, help="Queue pairs.")] = 1,
    depth: Annotated[int, typer.Option("-t", "--tx-depth", min=1, max=256, help="Outstanding writes a pair.")] = 128,
    _no_warning: Annotated[bool, typer.Option("-F", help="Accepted as by perftest; has no effect.")] = False,
    tos: Annotated[int, typer.Option("-T", "--tos", min=0, max=255, help="Only 0: the endpoint sets it itself.")] = 0,
    in_gbits: Annotated[bool, typer.Option("--report_gbits", help="Report Gb/s, not MiB/s.")] = False,
    each_way: Annotated[bool, typer.Option("--report-both", help="With -b: a line for each direction.")] = False,
    out_json: Annotated[bool, typer.Option("--out_json", "--json", help="Print one JSON object on stdout.")] = False,
    json_file: Annotated[Path | None, typer.Option("--out_json_file", help="Write that object to a file.")] = None,
    for_ever: Annotated[bool, typer.Option("--run_infinitely", help="Until Ctrl-C.")] = False,
    gid: Annotated[
        int, typer.Option("-x", "--gid-index", "-g", "--gid-idx", min=0, help="Which address of each --ib-dev.")
    ] = 0,
    device: Annotated[
        str | None, typer.Option("-d", "--ib-dev", metavar="IF,...", help="Interfaces as planes.")
    ] = None,
    one_plane: Annotated[int | None, typer.Option("-i", "--ib-port", min=1, help="Use this plane only.")] = None,
    min_size: Annotated[str, typer.Option("--min-size", help="Least size of -a.")] = "2",
    factor: Annotated[int, typer.Option("--step-factor", min=2, help="From size to size of -a.")] = 2,
    warmup: Annotated[int, typer.Option("-w", "--warmup-iters", min=0, help="Writes before measuring.")] = 0,
    planes: options.Planes = None,
    remote: options.Remote = None,
    loopback: Annotated[bool, typer.Option("--loopback", help="Start the server too, as a second process.")] = False,
    latency: Annotated[bool, typer.Option("--lat", help="Measure latency.")] = False,
    immediate: Annotated[bool, typer.Option("--imm", help="Writes with immediate.")] = False,
    impair: Annotated[
        str | None, typer.Option("--impair", metavar="WORDS", help='Impair both ends, from the start: "loss: 1%".')
    ] = None,
    schedule: Annotated[
        Path | None, typer.Option("--schedule", metavar="FILE", help="Impair both ends as this YAML file says.")
    ] = None,
    ev_format: options.Format = "udp",
    capture: options.Capture = None,
    algorithm: Annotated[str, typer.Option("--cc", help="Congestion control: nscc or none.")] = "nscc",
    timeout: options.Timeout = 10.0,
    quiet: Annotated[bool, typer.Option("--quiet", help="No interval lines.")] = False,
    ready_fd: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Measure what one queue pair, or several, move over all planes.

    The client decides what is measured; the server needs to agree on planes, --mtu and --format only. Latency is
    half a round trip of writes with immediate. Interval lines on stderr show each plane's share.
    """
    from openmrc.apps.endpoint import EndpointOptions, faults_text, read_faults
    from openmrc.apps.perf_words import Plan, Test
    from openmrc.apps.planes import are_ours_to_choose
    from openmrc.cli.outcome import planes_of
    from openmrc.cli.perf_run import Command

    if loopback and host is not None:
        raise UsageError("--loopback starts its own server: leave HOST out")
    if tos:
        raise UsageError(f"--tos: {tos}: the endpoint marks each packet by what it is, data or control; only 0 works")
    is_client = loopback or host is not None
    if not is_client and (impair is not None or schedule is not None):
        given = read_faults(impair, schedule)
    else:
        given = None
    plan = Plan(
        test=Test.LATENCY if latency else Test.BANDWIDTH,
        sizes=_sizes(size, min_size, factor, all_sizes, latency),
        iterations=iterations or (1000 if latency else 5000),
        duration=1e9 if for_ever else duration or 0.0,
        warmup=warmup,
        depth=depth,
        queue_pairs=1 if latency else queue_pairs,
        both_ways=both_ways,
        immediate=immediate,
        faults=faults_text(impair, schedule) if is_client else None,
    )
    if loopback and planes is None and device is None:
        planes = "4"
    ours, theirs = planes_of(planes, remote, "localhost" if loopback else host, device, gid)
    if one_plane is not None:
        ours = _only(ours, one_plane)
    movable = are_ours_to_choose(planes, device)
    endpoint = EndpointOptions(ours, movable, ev_format, mtu, max(queue_pairs, 8), capture, algorithm, given)
    command = Command(
        endpoint=endpoint,
        plan=plan,
        port=port,
        remote=theirs,
        timeout=timeout,
        in_gbits=in_gbits,
        each_way=each_way,
        as_json=out_json,
        json_file=json_file,
        quiet=quiet,
        for_ever=for_ever,
        ready_fd=ready_fd,
    )
    if loopback:
        command.both()
    elif host is not None:
        command.client(host)
    else:
        command.server()


def _sizes(size: str | None, least: str, factor: int, all_sizes: bool, latency: bool) -> list[int]:
    from openmrc.apps.perf_session import LARGEST_SIZE, sizes_from
    from openmrc.apps.sizes import size_bytes

    default = str(_MOST) if all_sizes else "2" if latency else "65536"
    most = size_bytes(size or default, "--size", 1, LARGEST_SIZE)
    return sizes_from(size_bytes(least, "--min-size", 1, most), most, factor) if all_sizes else [most]


def _only(planes: tuple[str, ...], number: int) -> tuple[str, ...]:
    from openmrc.live.host.interfaces import find_planes
    from openmrc.live.host.sockets import MAX_PLANES

    known = planes or tuple(str(each.address) for each in find_planes(MAX_PLANES))
    if number > len(known):
        raise UsageError(f"--ib-port: there are planes 1 to {len(known)}, not {number}")
    return (known[number - 1],)
