#!/usr/bin/env bash
# Measure statement coverage with everything interpreted, and refuse a folder that falls below its floor.
#
#   tests/coverage.sh BIN [clockless | clocked | report]    BIN: folder of the environment's programs
#
# Without a stage: all three. Tests of the first stage wait for no clock and time nothing by it, so they may run beside
# others, however slowly. COVERAGE_FILE: where stages keep what they measured.
set -euo pipefail
bin=$1 stage=${2:-all}
declare -A tests=(
  [clockless]="tests/core tests/wire tests/engine tests/ctl/profiles tests/fabric"
  [clocked]="tests/live tests/ctl tests/test_verbs.py --ignore=tests/ctl/profiles"
)
# What takes two fifths of the time of the first stage and reaches almost nothing that other files do not: 12 of 4,794
# statements of the engine, 34 of 6,943 lines of the fabric. `make test` runs them, through the same interpreted code.
for file in core/test_jit_imports engine/test_{conversations,forged_answers,hostile,reordering,spray,storms,tracker} \
  fabric/test_{found,topology,verify}; do
  tests[clockless]+=" --ignore=tests/$file.py"
done
declare -A floors=([engine]=98 [ctl/profiles]=98 [wire]=97 [fabric]=90 [live]=90 [core]=75)  # per cent of statements
kept=${COVERAGE_FILE:-${TMPDIR:-/tmp}/openmrc-coverage-$$}
export NUMBA_DISABLE_JIT=1
unset PYTHONDONTWRITEBYTECODE  # each worker and each command would compile its sources again

measure() {
  COVERAGE_FILE=$kept.$1 "$bin/pytest" -q -n "$2" --dist worksteal --fast --cov=openmrc --cov-report= ${tests[$1]}
}

report() {
  export COVERAGE_FILE=$kept
  "$bin/coverage" combine -q "$kept.clockless" "$kept.clocked"
  # What Numba calls while it compiles, and what writes object files: nothing interpreted goes through it.
  local parts=(entry_cache kernel_type table_tuples object_code) compiled share folder status=0
  compiled=$(printf 'openmrc/core/%s.py,' "${parts[@]}")
  for folder in "${!floors[@]}"; do
    share=$("$bin/coverage" report --include="openmrc/$folder/*" --omit="$compiled" --format=total)
    echo "coverage: openmrc/$folder $share % of statements (floor ${floors[$folder]})"
    [ "$share" -ge "${floors[$folder]}" ] || status=1
  done
  rm -f "$kept"*
  return "$status"
}

case $stage in
  clockless) measure clockless auto ;;
  clocked) measure clocked "$(($(nproc) * 3 / 2))" ;;  # many wait
  report) report ;;
  all)
    trap 'rm -f "$kept"*' EXIT
    measure clockless auto
    measure clocked "$(($(nproc) * 3 / 2))"
    report
    ;;
  *) echo "coverage: no stage $stage" >&2; exit 2 ;;
esac
