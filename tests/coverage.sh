#!/usr/bin/env bash
# Measure statement coverage with everything interpreted, and refuse a folder that falls below its floor.
set -euo pipefail
bin=$1
tests="tests/core tests/wire tests/engine tests/profiles tests/fabric tests/live tests/ctl tests/telemetry tests/worlds tests/test_verbs.py"
declare -A floors=([engine]=98 [profiles]=98 [wire]=97 [fabric]=90 [live]=90 [core]=75)  # per cent of statements

export NUMBA_DISABLE_JIT=1 COVERAGE_FILE=${TMPDIR:-/tmp}/openmrc-coverage-$$
trap 'rm -f "$COVERAGE_FILE"*' EXIT
"$bin/pytest" -q -n auto --dist worksteal --fast --cov=openmrc --cov-report= $tests
status=0
for folder in "${!floors[@]}"; do
  # What Numba calls while it compiles, and what writes object files: nothing interpreted goes through it.
  compiled="openmrc/core/object_code.py,openmrc/core/entry_cache.py,openmrc/core/table_tuples.py,openmrc/core/kernel_type.py"
  share=$("$bin/coverage" report --include="openmrc/$folder/*" --omit="$compiled" --format=total)
  echo "coverage: openmrc/$folder $share % of statements (floor ${floors[$folder]})"
  [ "$share" -ge "${floors[$folder]}" ] || status=1
done
exit "$status"
