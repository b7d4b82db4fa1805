#!/usr/bin/env bash
# Measure statement coverage with everything interpreted, and refuse a folder that falls below its floor.
set -euo pipefail
bin=$1
tests="tests/core tests/wire tests/engine tests/profiles tests/fabric tests/live tests/worlds tests/test_verbs.py"
declare -A floors=([engine]=98 [profiles]=98 [wire]=97 [fabric]=90 [live]=90 [core]=75)  # per cent of statements

export NUMBA_DISABLE_JIT=1 COVERAGE_FILE=${TMPDIR:-/tmp}/openmrc-coverage-$$
trap 'rm -f "$COVERAGE_FILE"*' EXIT
"$bin/pytest" -q -n auto --dist worksteal --fast --cov=openmrc --cov-report= $tests
status=0
for folder in "${!floors[@]}"; do
  # object_code.py writes object files of compiled code: tests/native goes through it, nothing interpreted can
  share=$("$bin/coverage" report --include="openmrc/$folder/*" --omit="openmrc/core/object_code.py" --format=total)
  echo "coverage: openmrc/$folder $share % of statements (floor ${floors[$folder]})"
  [ "$share" -ge "${floors[$folder]}" ] || status=1
done
exit "$status"
