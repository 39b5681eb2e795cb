#!/usr/bin/env bash
# Runs the examples that build_examples.sh has built, in every way that their READMEs name. The losses of 01 must agree;
# the others check their own results, but 10, 11 and 12, which have tests in Python. Programs linked to the package must
# find the downloader in it.
#
# Usage: run_examples.sh BUILD_DIR WORK_DIR PYTHON
set -euo pipefail
build=$1 work=$2 python=$3

"$work/loading/loading_data" | grep 'are as the guide says'

# Our program and a user's program must both find the installed downloader. Nothing listens on port 1.
if [[ -f $build/lockstep_download.so ]]; then
  offline=(env -u LOCKSTEP_DATA -u LOCKSTEP_MODULE_DIR LOCKSTEP_MIRROR=http://127.0.0.1:1
           no_proxy=127.0.0.1 XDG_CACHE_HOME="$work/cache")
  "${offline[@]}" "$work/downloader/downloader"
  if "${offline[@]}" "$work/prefix/bin/lockstep" train cifar10 2>"$work/offline.err"; then exit 1; fi
  grep "cannot download http://127.0.0.1:1/" "$work/offline.err"
fi

"$work/build/single" >"$work/single.txt"
"$work/build/distributed" >"$work/alone.txt"
"$work/without-cmake" >"$work/without-cmake.txt"

# Sets by hand the environment variables that launchers agree on.
by_hand() {  # by_hand SIZE OUTPUT PROGRAM ARGUMENT...: the ranks write OUTPUT-RANK.txt
  local size=$1 output=$2 rank port ranks=()
  shift 2
  port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  for ((rank = 0; rank < size; ++rank)); do
    RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=$size LOCAL_WORLD_SIZE=$size MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
      "$@" >"$output-$rank.txt" &
    ranks[rank]=$!
  done
  for rank in "${ranks[@]}"; do wait "$rank"; done
}
by_hand 2 "$work/by-hand" "$work/build/distributed"

communication=$work/communication/communication
"$communication" | grep -x 'group of 1 over single: all results are right'
by_hand 2 "$work/over-shm" "$communication"
grep -x 'group of 2 over shm: all results are right' "$work/over-shm-0.txt"
by_hand 3 "$work/over-gloo" "$communication" gloo
grep -x 'group of 3 over gloo: all results are right' "$work/over-gloo-0.txt"

training=$work/training/training
"$training" | grep -x 'group of 1 over single: all results are right'
by_hand 3 "$work/training-shm" "$training"
grep -x 'group of 3 over shm: all results are right' "$work/training-shm-0.txt"
by_hand 2 "$work/training-gloo" "$training" gloo
grep -x 'group of 2 over gloo: all results are right' "$work/training-gloo-0.txt"

loop=$work/loop/training_loop
"$loop" | grep -x 'group of 1 over single: all results are right'
by_hand 3 "$work/loop-shm" "$loop"
grep -x 'group of 3 over shm: all results are right' "$work/loop-shm-0.txt"
by_hand 2 "$work/loop-gloo" "$loop" gloo
grep -x 'group of 2 over gloo: all results are right' "$work/loop-gloo-0.txt"

sgd=$work/sgd/sgd_by_hand
"$sgd" | grep -x 'group of 1 over single: all results are right'
by_hand 3 "$work/sgd-shm" "$sgd"
grep -x 'group of 3 over shm: all results are right' "$work/sgd-shm-0.txt"
by_hand 2 "$work/sgd-gloo" "$sgd" gloo
grep -x 'group of 2 over gloo: all results are right' "$work/sgd-gloo-0.txt"

parallel=$work/parallel/data_parallel
"$parallel" | grep -x 'group of 1 over single: all results are right'
"$work/prefix/bin/lockstep" run --nproc-per-node 2 "$parallel" | grep -x 'group of 2 over shm: all results are right'
by_hand 3 "$work/parallel-gloo" "$parallel" gloo
grep -x 'group of 3 over gloo: all results are right' "$work/parallel-gloo-0.txt"

trainer=$work/trainer/trainer
"$trainer" | grep -x 'group of 1 over single: all results are right'
"$work/prefix/bin/lockstep" run --nproc-per-node 2 "$trainer" | grep -x 'group of 2 over shm: all results are right'
by_hand 2 "$work/trainer-gloo" "$trainer" gloo
grep -x 'group of 2 over gloo: all results are right' "$work/trainer-gloo-0.txt"

small=("$work/resnet50/resnet50" --image-size 64 --steps 1)
"${small[@]}" | grep -x 'group of 1 over single: all results are right'
"$work/prefix/bin/lockstep" run --nproc-per-node 2 "${small[@]}" --cut balance >"$work/resnet50-balance.txt"
grep -x 'group of 2 over shm: all results are right' "$work/resnet50-balance.txt"
grep -E '^balance by time: [0-9]+ \+ [0-9]+ layers, .* ms; the largest stage has ' "$work/resnet50-balance.txt"
by_hand 2 "$work/resnet50-gloo" "${small[@]}" --backend gloo
grep -x 'group of 2 over gloo: all results are right' "$work/resnet50-gloo-0.txt"

runs=(alone without-cmake by-hand-0 by-hand-1)
if "$python" -c 'import torch.distributed.run' 2>/dev/null; then
  "$python" -m torch.distributed.run --no-python --nproc-per-node 2 --redirects 1 --log-dir "$work/torchrun" \
    "$work/build/distributed" 2>"$work/torchrun.err"
  for rank in 0 1; do
    cp "$(ls -d "$work"/torchrun/*/attempt_0/$rank/stdout.log)" "$work/torchrun-$rank.txt"
    runs+=("torchrun-$rank")
  done
else
  echo "without torchrun: $python has no torch"
fi

for run in "${runs[@]}"; do
  paste -d' ' "$work/single.txt" "$work/$run.txt" | awk -v run="$run" '
    { difference = $4 - $8; if (difference < 0) difference = -difference
      if (NF != 8 || $2 != $6 || difference > 2e-5) { print run ": " $0; bad = 1 } }
    END { if (NR != 5) { print run ": " NR " lines, expected 5"; bad = 1 }; exit bad }'
  echo "$run agrees with single: $(tail -1 "$work/$run.txt")"
done
# Training must have had an effect: with three classes, the loss starts at 1.1.
awk 'END { exit !($4 < 0.3) }' "$work/single.txt"
