#!/usr/bin/env bash
# Run the part of the tests that needs no compiled code on every supported Python that this machine has.
set -uo pipefail
fast="tests/core tests/wire tests/engine tests/ctl/profiles tests/fabric tests/report tests/test_verbs.py"
status=0
for version in 3.11 3.12 3.13 3.14; do
  python=""
  for candidate in "$(command -v "python$version" || true)" "$HOME"/.pyenv/versions/"$version".*/bin/python; do
    [ -x "$candidate" ] && "$candidate" --version 2>/dev/null | grep -q "^Python $version" && python=$candidate && break
  done
  if [ -z "$python" ]; then
    echo "Python $version: not on this machine"
    continue
  fi
  venv=.venv-$version
  [ -x "$venv/bin/pytest" ] || { "$python" -m venv "$venv" && "$venv/bin/python" -m pip install --disable-pip-version-check -q \
    -c constraints.txt -e '.[dev]'; } || { echo "Python $version: cannot be installed"; status=1; continue; }
  if NUMBA_DISABLE_JIT=1 "$venv/bin/pytest" -q -n 2 $fast; then
    echo "Python $version: passed"
  else
    echo "Python $version: failed"
    status=1
  fi
done
exit "$status"
