#!/usr/bin/env bash
# Build google/rdma-unit-test from its sources, without bazel, and run its unit tests on the device, each in a process.
#
#   tests/native/rdma_unit_test.sh CLONE BUILD    CLONE: of the suite; BUILD: a folder for a changed copy and what it becomes
#
# It needs cmake, ninja, g++, gtest and gmock, abseil of 2023 or later and magic_enum; CMAKE_PREFIX_PATH says where they are.
# The suite knows devices by name, and stops at any other: what it has for rxe is given the name mrc, reliable connections
# and none of rxe's exceptions. It registers memory for memory windows everywhere, which the device refuses: that is left out.
set -euo pipefail
library=$("$(dirname "$0")/../../.venv/bin/mrc" native --path)
build=$(realpath -m "$2")
mkdir -p "$build/suite" "$build/logs"
cp -r "$1"/. "$build/suite"
cd "$build/suite"
sed -i -z 's/"rxe"/"mrc"/; s/deviations{.*\n    };/deviations{};/
  s/IpV6() const override { return false; }/IpV6() const override { return true; }/
  s/\(bool SupportsRcQp() const override { return \)false; }/\1true; }\n  bool SupportsUdQp() const override { return false; }\n  bool SupportsExtendedCqs() const override { return false; }/
  ' internal/introspection_rxe.h
sed -i 's/IBV_ACCESS_MW_BIND/0/' public/verbs_helper_suite.h unit/access_test.cc
cat >CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.16)
project(suite CXX)
set(CMAKE_CXX_STANDARD 17)
foreach(package absl GTest Threads)
  find_package(${package} REQUIRED)
endforeach()
find_path(magic_enum magic_enum.hpp PATH_SUFFIXES magic_enum REQUIRED)
file(GLOB sources internal/*.cc public/*.cc unit/*.cc)
add_executable(unit ${sources})
target_include_directories(unit PRIVATE . ${magic_enum})
target_precompile_headers(unit PRIVATE <gtest/gtest.h> <gmock/gmock.h> <absl/status/statusor.h> <absl/log/log.h>)
target_link_libraries(unit GTest::gmock GTest::gtest ibverbs Threads::Threads absl::check absl::failure_signal_handler
  absl::flags absl::flags_parse absl::flat_hash_map absl::flat_hash_set absl::log absl::log_initialize absl::statusor
  absl::str_format absl::synchronization absl::time)
END
cmake -G Ninja -S . -B "$build/made" -DCMAKE_CXX_FLAGS="-w" >/dev/null
ninja -C "$build/made" >/dev/null
unset MRC_PORT
export LD_PRELOAD=$library MRC_PLANES=127.0.0.1,127.0.0.2,127.0.0.3,127.0.0.4 MRC_EMULATE=send,read,rnr MRC_LOG=off
"$build/made/unit" --gtest_list_tests | awk '/^[^ ].*\./ {suite = $1} /^  / {print suite $1}' | while read -r test; do
  log=$build/logs/${test//\//_}
  timeout 60 "$build/made/unit" --device_name=mrc0 --gtest_filter="$test" >"$log" 2>&1 </dev/null || true
  if grep -q '^\[  SKIPPED \]' "$log"; then echo "skipped $test"
  elif grep -q '^\[  PASSED  \] 1 test' "$log"; then echo "passed  $test"
  else echo "failed  $test"; fi
done >"$build/results" 2>/dev/null  # tests that crash
cut -d' ' -f1 "$build/results" | sort | uniq -c
