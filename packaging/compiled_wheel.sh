#!/usr/bin/env bash
# Build a wheel with compiled code: for this Python (minor version), this Numba, and any x86-64 of level v3.
# Installed elsewhere, it starts in seconds; with another Python or Numba it compiles as the plain wheel does.
#
#   packaging/compiled_wheel.sh PYTHON FOLDER [MACHINE]    MACHINE: aarch64 for what LLVM finishes there at the first use
set -euo pipefail
python=$(realpath -s "$1")
mkdir -p "$2"
out=$(realpath "$2")
root=$(realpath "$(dirname "$0")/..")
machine=${3:-x86_64}
[ "$(uname -sm)" = "Linux x86_64" ] || { echo "compiled wheels are made on Linux with x86-64 only" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -rf "$root/build"  # modules that have moved since would be packed, too
"$python" -m pip wheel --disable-pip-version-check -q --no-deps --wheel-dir "$work" "$root"
"$python" -m wheel unpack --dest "$work/tree" "$work"/openmrc-*.whl >/dev/null
cd "$work"/tree/openmrc-*
export PYTHONDONTWRITEBYTECODE=1
"$python" -m openmrc.programs.warm
# What that left in the cache holds for every processor, so that only LLVM has work to do for this one.
cpu=$("$python" -c 'from openmrc.core.jit import SHIPPED_CPU; print(SHIPPED_CPU)')
jobs=()
worlds="live sim planner"
[ "$machine" = x86_64 ] || worlds=""
for world in $worlds; do
  NUMBA_CPU_NAME=$cpu NUMBA_CPU_FEATURES="" "$python" -m openmrc.programs.warm "$world" "" & jobs+=($!)
done
for job in "${jobs[@]}"; do wait "$job"; done
PYTHONPATH=$PWD "$python" "$root/packaging/shipped_code.py" openmrc/compiled "$machine"
if [ "$machine" = x86_64 ]; then
  library=$("$python" -c 'import openmrc; print(openmrc.get_library())')
  mkdir openmrc/lib
  cp "$library" openmrc/lib/
fi
"$python" -m wheel pack --dest-dir "$work" . >/dev/null
tag=$("$python" -c 'import sys; print("cp{}{}".format(*sys.version_info[:2]))')
"$python" -m wheel tags --python-tag "$tag" --abi-tag "$tag" --platform-tag "linux_$machine" "$work"/openmrc-*-py3-none-any.whl >/dev/null
mv "$work"/openmrc-*-"$tag"-"$tag"-"linux_$machine".whl "$out"
ls -l "$out"/openmrc-*-"$tag"-"linux_$machine".whl
