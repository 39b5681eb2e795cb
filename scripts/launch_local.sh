#!/usr/bin/env bash
set -euo pipefail
ABOUT="Trains each configuration on this host."
source "$(dirname "${BASH_SOURCE[0]}")/configurations.sh"

launch_one() {
  local processes=$1 name=$2
  shift 2
  "$program" "$@" --nproc-per-node "$processes" >"$logs/$name.log" 2>&1
}

launch_all "$@"
