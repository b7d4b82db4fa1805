#!/usr/bin/env bash
# Build google/rdma-unit-test from its sources with bazel, and run it on the device; nobody has done so yet.
#
#   tests/native/rdma_unit_test.sh FOLDER [CASE ...]    FOLDER: a clone; CASE: as rc_test, all of cases/ if none is given
#
# It knows devices by name, and stops at any other: what it has for rxe is given the name mrc, with reliable connections.
set -euo pipefail
library=$("$(dirname "$0")/../../.venv/bin/mrc" native --path)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$1" "$work/suite"
cd "$work/suite"
targets=("${@:2}")
[ $# -gt 1 ] || targets=(all)
sed -i 's/"rxe"/"mrc"/; /SupportsRcQp/s/false/true/' internal/introspection_rxe.h
cat >run.sh <<END
#!/bin/sh
export LD_PRELOAD=$library MRC_PLANES=127.0.0.1,127.0.0.2,127.0.0.3,127.0.0.4 MRC_EMULATE=send,read,rnr
exec "\$@"
END
chmod +x run.sh
bazel test --spawn_strategy=local --test_output=errors --keep_going --run_under="$PWD/run.sh" \
  --test_arg=--device_name=mrc0 --test_arg=--no_ipv6_for_gid "${targets[@]/#///cases:}"
