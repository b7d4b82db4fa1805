#!/usr/bin/env bash
# Build what a release consists of into FOLDER, which must be empty or absent: the source archive, the plain wheel, a wheel
# with compiled code for every supported Python that this machine has, Debian packages where it can build them, the digests
# of dependencies, a bill of materials (CycloneDX), and SHA256SUMS over all. Says what it could not build.
#
#   packaging/release.sh FOLDER [VERSION...]    VERSION: Pythons to compile for; "none" for no compiled wheel
#
# The same commit makes the same bytes, so a second run elsewhere is compared by `sha256sum -c`: two runs with Python 3.11, in
# two clones, were equal in all files (27 November 2026).
set -euo pipefail
out=$(realpath -m "${1:-dist}")
versions=(3.11 3.12 3.13 3.14)
[ $# -lt 2 ] || versions=("${@:2}")
[ "${versions[*]}" != none ] || versions=()
root=$(realpath "$(dirname "$0")/..")
cd "$root"
mkdir -p "$out"
[ -z "$(ls -A "$out")" ] || { echo "$out is not empty" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
missing=()

git archive --format=tar.gz --prefix=openmrc/ -o "$out/openmrc-source.tar.gz" HEAD
mkdir "$work/source"
git archive HEAD | tar -x -C "$work/source"  # not the working tree: what is not committed is not released
python3 -m venv "$work/tools"
"$work/tools/bin/python" -m pip install --disable-pip-version-check -q 'cyclonedx-bom>=7,<8'
"$work/tools/bin/python" -m pip wheel --disable-pip-version-check -q --no-deps --wheel-dir "$out" "$work/source"
cp packaging/requirements.txt "$out/requirements.txt"
"$work/tools/bin/cyclonedx-py" requirements packaging/requirements.txt --pyproject pyproject.toml --mc-type library \
  --output-reproducible --of JSON -o "$out/openmrc.cdx.json" 2>/dev/null

# Compiled in a cache of its own: the user's also has what tests compiled, for other types, and that would be packed, too.
for version in "${versions[@]}"; do
  python=""
  for candidate in "$(command -v "python$version" || true)" "$HOME"/.pyenv/versions/"$version".*/bin/python; do
    [ -x "$candidate" ] && "$candidate" --version 2>/dev/null | grep -q "^Python $version" && python=$candidate && break
  done
  if [ -z "$python" ]; then
    missing+=("compiled wheel for Python $version: no such Python on this machine")
    continue
  fi
  venv=$root/.venv-wheel-$version
  [ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
  if ! "$venv/bin/python" -m pip install --disable-pip-version-check -q -c constraints.txt "$work/source" wheel; then
    missing+=("compiled wheel for Python $version: the dependencies cannot be installed")
  else
    for machine in x86_64 aarch64; do
      XDG_CACHE_HOME=$work/cache "$work/source/packaging/compiled_wheel.sh" "$venv/bin/python" "$out" "$machine" >/dev/null ||
        missing+=("compiled wheel for Python $version, $machine: the build failed, see above")
    done
  fi
done
if ! command -v dpkg-deb >/dev/null || ! command -v cc >/dev/null || [ ! -e /usr/include/infiniband/verbs.h ]; then
  missing+=("Debian packages: they need dpkg-deb, cc and libibverbs-dev")
else
  "$work/source/packaging/debian.sh" "${PYTHON:-.venv/bin/python}" "$out" >/dev/null
fi
(cd "$out" && sha256sum -- * >SHA256SUMS)
ls -l "$out"
for each in "${missing[@]}"; do echo "not built: $each"; done
