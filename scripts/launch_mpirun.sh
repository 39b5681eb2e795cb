#!/usr/bin/env bash
set -euo pipefail
ABOUT="Trains each configuration under mpirun, whose own options stand in MPIRUN_OPTIONS, such as '--host a,b'."
source "$(dirname "${BASH_SOURCE[0]}")/configurations.sh"

command -v mpirun >/dev/null || fail "there is no mpirun in PATH"

launch_one() {
  local processes=$1 name=$2
  shift 2
  # shellcheck disable=SC2086  # several options in one variable
  mpirun -np "$processes" ${MPIRUN_OPTIONS:-} "$program" "$@" >"$logs/$name.log" 2>&1
}

launch_all "$@"
