"""Running commands in the test's own process: what is refused needs no process of its own."""

from __future__ import annotations

import contextlib
import io
import sys

import pytest

from openmrc.programs.main import main


def run_here(*arguments: object) -> tuple[int, str, str]:
    """Run `mrc ARGUMENTS`; return exit code, stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setattr(sys, "argv", ["mrc", *map(str, arguments)])
        code: object = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    if isinstance(code, str):
        return 1, out.getvalue(), f"{err.getvalue()}{code}\n"
    return int(code or 0), out.getvalue(), err.getvalue()  # type: ignore[call-overload]
