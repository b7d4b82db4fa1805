"""Which rank of which job a process is, by the variables that launchers set."""

from pathlib import Path

RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")  # torchrun; Slurm; Open MPI; MPICH
JOBS = ("SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", "KUBERNETES_JOB_NAME", "JOB_ID")


def rank_of(pid: int) -> str:
    """Return "rank 3 of job 17", "rank 3", or nothing if a process of this machine has no rank, or may not be read."""
    try:
        text = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return ""
    known = dict(each.split("=", 1) for each in text.split("\0") if "=" in each)
    rank, job = (next((known[name] for name in names if known.get(name)), "") for names in (RANKS, JOBS))
    if not rank.isdigit():
        return ""
    printable = "".join(each for each in job[:64] if each.isprintable())  # of a name that somebody else chose
    return f"rank {rank} of job {printable}" if job and job != "none" else f"rank {rank}"
