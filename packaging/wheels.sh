#!/usr/bin/env bash
# Build what a release consists of into FOLDER: the source archive, the plain wheel, and a wheel with compiled code for
# every supported Python that this machine has. Says which it could not build.
set -euo pipefail
out=$(realpath -m "${1:-dist}")
root=$(realpath "$(dirname "$0")/..")
mkdir -p "$out"
built=() missing=()
for version in 3.11 3.12 3.13 3.14; do
  python=""
  for candidate in "$(command -v "python$version" || true)" "$HOME"/.pyenv/versions/"$version".*/bin/python; do
    [ -x "$candidate" ] && "$candidate" --version 2>/dev/null | grep -q "^Python $version" && python=$candidate && break
  done
  if [ -z "$python" ]; then
    missing+=("$version: no such Python on this machine")
    continue
  fi
  venv=$root/.venv-wheel-$version
  [ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
  if ! "$venv/bin/python" -m pip install --disable-pip-version-check -q -c "$root/constraints.txt" "$root" wheel; then
    missing+=("$version: the dependencies cannot be installed")
  elif ! "$root/packaging/compiled_wheel.sh" "$venv/bin/python" "$out" >/dev/null; then
    missing+=("$version: the build failed, see above")
  else
    built+=("$version")
    plain=$venv/bin/python
  fi
done
if [ "${#built[@]}" -gt 0 ]; then
  "$plain" -m pip wheel --disable-pip-version-check -q --no-deps --wheel-dir "$out" "$root"
fi
git -C "$root" archive --format=tar.gz --prefix=openmrc/ -o "$out/openmrc-source.tar.gz" HEAD
ls -l "$out"
echo "wheels with compiled code: ${built[*]:-none}"
for each in "${missing[@]}"; do
  echo "not built, Python $each"
done
[ "${#built[@]}" -gt 0 ]
