#!/usr/bin/env bash
# Build the wheel, install it into an empty environment away from the checkout, move a file with it, import all of it.
# Then the same file with a wheel that ships compiled code, and an empty cache: nothing may be compiled.
#
#   tests/wheel.sh PYTHON [FOLDER]    FOLDER: where packaging/compiled_wheel.sh puts the wheel with compiled code, in minutes
set -euo pipefail
python=$(realpath -s "$1") compiled=${2:+$(realpath -m "$2")}
root=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset PYTHONDONTWRITEBYTECODE  # each process of the new environments would compile its sources again
rm -rf "$root/build"  # modules that have moved since would be packed, too
"$python" -m pip wheel --disable-pip-version-check -q --no-deps --wheel-dir "$work" "$root"
"$python" -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --disable-pip-version-check -q --no-compile -c "$root/constraints.txt" "$work"/openmrc-*.whl
cd "$work"
venv/bin/mrc demo --size 64MiB --no-tcp --no-simulation  # the compiled wheel simulates
venv/bin/python - <<'PROGRAM'
"""Import every module that needs no extra."""
import importlib
import pkgutil

import openmrc

EXTRAS = {"anyio", "cryptography", "h11", "polars", "prometheus_client", "pyroute2", "ray", "starlette", "torch", "uvicorn"}
count = 0
for module in pkgutil.walk_packages(openmrc.__path__, "openmrc."):
    try:
        importlib.import_module(module.name)
        count += 1
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in EXTRAS:
            raise
print(f"wheel: {count} modules imported")
PROGRAM
venv/bin/mrc fabric show scenarios/fabrics/gpus-1024.yaml >/dev/null && echo "wheel: scenarios ship with it"

[ "$(uname -m)" = x86_64 ] || exit 0
if [ -n "$compiled" ]; then
  for _ in {1..300}; do compgen -G "$compiled/openmrc-*.whl" >/dev/null && break; sleep 1; done
else
  "$root/packaging/compiled_wheel.sh" "$python" "${compiled:=$work/compiled}"
fi
venv/bin/python -m pip install --disable-pip-version-check -q --no-compile --force-reinstall --no-deps "$compiled"/openmrc-*.whl
export XDG_CACHE_HOME=$work/empty
begun=$SECONDS
venv/bin/mrc demo --seconds 2 --no-tcp 2>&1 | tee "$work/said" | tail -n 3
echo "wheel: first demo and simulation with compiled code, $((SECONDS - begun)) s"
! grep "openmrc: compiling" "$work/said"
