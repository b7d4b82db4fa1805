#!/usr/bin/env bash
# Write packaging/requirements.txt: the versions of constraints.txt that the package needs at run time, with digests.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${1:-python3}" -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --disable-pip-version-check -q 'pip-tools>=7.5,<8'
"$work/venv/bin/pip-compile" -q --generate-hashes --strip-extras --allow-unsafe --no-emit-index-url --no-emit-find-links \
  --no-annotate --no-header -c constraints.txt -o "$work/locked" pyproject.toml
{
  sed -n '/^[^#]/q;p' packaging/requirements.txt
  cat "$work/locked"
} >"$work/new"
mv "$work/new" packaging/requirements.txt
