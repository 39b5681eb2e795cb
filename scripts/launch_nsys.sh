#!/usr/bin/env bash
set -euo pipefail
ABOUT="Trains each configuration on this host under NVIDIA's profiler: LOGS/NAME.nsys-rep. Without nsys it trains plainly."
source "$(dirname "${BASH_SOURCE[0]}")/configurations.sh"

if ! command -v nsys >/dev/null; then
  echo "note: there is no nsys in PATH, so that nothing is profiled" >&2
fi

launch_one() {
  local processes=$1 name=$2 profiler=()
  shift 2
  if command -v nsys >/dev/null; then
    profiler=(nsys profile --trace=cuda,nvtx,osrt --force-overwrite=true --output "$logs/$name")
  fi
  "${profiler[@]}" "$program" "$@" --nproc-per-node "$processes" >"$logs/$name.log" 2>&1
}

launch_all "$@"
