#!/usr/bin/env bash
# Build google/rdma-unit-test from its sources, without bazel, and run its unit tests on the device, each in a process.
#
#   tests/native/rdma_unit_test.sh CLONE BUILD [FILTER]
#
# CLONE is the suite's. BUILD is a folder for a changed copy, what it becomes, a log of each test and `results`; what was built
# there is used again. FILTER is googletest's, `QpTest.*:LoopbackRcQpTest.*`: all tests if it is left out.
#
# It needs cmake, ninja, g++, gtest and gmock, abseil of 2023 or later and magic_enum; CMAKE_PREFIX_PATH says where they are.
# The suite knows devices by name, and stops at any other: what it has for rxe is given the name mrc, reliable connections
# and none of rxe's exceptions. It registers memory for memory windows everywhere, which the device refuses: that is left out.
# Its tests of regions of no bytes are skipped, as for irdma: a kernel refuses such regions, too. It waits 2 s for a completion, but
# lets requests to a peer that is not ready try six times for 1.07 s, which here end after 7.9 s, as InfiniBand allows (volume 1,
# 9.7.6.1.3): for these it is told to wait.
set -euo pipefail
library=$("$(dirname "$0")/../../.venv/bin/mrc" native --path)
build=$(realpath -m "$2")
filter=${3:-*}

build_suite() {
  mkdir -p "$build/suite"
  cp -r "$1"/. "$build/suite"
  cd "$build/suite"
  sed -i -z 's/"rxe"/"mrc"/; s/deviations{.*\n    };/deviations{};/
    s/IpV6() const override { return false; }/IpV6() const override { return true; }/
    s/\(bool SupportsRcQp() const override { return \)false; }/\1true; }\n  bool SupportsUdQp() const override { return false; }\n  bool SupportsExtendedCqs() const override { return false; }\n  bool SupportsZeroLengthMr() const override { return false; }/
    ' internal/introspection_rxe.h
  sed -i 's/IBV_ACCESS_MW_BIND/0/' public/verbs_helper_suite.h unit/{access,threaded}_test.cc
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
}

# What became of a test: a crash is told from a failure.
outcome_of() {
  if grep -q '^\[  SKIPPED \]' "$1"; then echo skipped
  elif grep -q '^\[  PASSED  \] 1 test' "$1"; then echo passed
  elif grep -q '^\[  FAILED  \] 1 test' "$1"; then echo failed
  else echo ended; fi # by a signal, or by the limit of time
}

[ -x "$build/made/unit" ] || (build_suite "$1")
mkdir -p "$build/logs"
unset MRC_PORT
export LD_PRELOAD=$library MRC_PLANES=127.0.0.1,127.0.0.2,127.0.0.3,127.0.0.4 MRC_EMULATE=send,read,rnr MRC_LOG=off
"$build/made/unit" --gtest_list_tests --gtest_filter="$filter" |
  awk '/^[^ ].*\./ {suite = $1} /^  / {print suite $1}' | while read -r test; do
  log=$build/logs/${test//\//_}
  case $test in
    *.RemoteRcQpStateTests/* | *.ResponderNotReadyToReceive/* | *.PostRecvInit) times=5 ;;
    *) times=1 ;;
  esac
  timeout 90 "$build/made/unit" --device_name=mrc0 --completion_wait_multiplier=$times --gtest_filter="$test" >"$log" 2>&1 </dev/null || true
  echo "$(outcome_of "$log") $test"
done >"$build/results" 2>/dev/null  # tests that crash
awk '{split($2, name, "."); suites[name[1]]; count[name[1], $1]++; count["all", $1]++}
     function row(of) {
       return sprintf("%-40s %6d %7d %6d %5d", of, count[of, "passed"], count[of, "skipped"], count[of, "failed"], count[of, "ended"])
     }
     END {printf "%-40s passed skipped failed ended\n", "suite"
          for (each in suites) print row(each) | "sort"
          close("sort")
          print row("all")}' "$build/results"
