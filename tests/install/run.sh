#!/usr/bin/env bash
# Installs Lockstep into an empty prefix, builds the examples against it as a user's project would, and runs them in
# every way that their READMEs name. The losses of 01 must agree; the others check their own results. Programs linked
# to the package must find the downloader in it.
#
# Usage: run.sh BUILD_DIR SOURCE_DIR WORK_DIR PYTHON CMAKE_ARGUMENT...
set -euo pipefail
build=$1 source=$2 work=$3 python=$4
shift 4
rm -rf "$work"
mkdir -p "$work"

cmake --install "$build" --prefix "$work/prefix" >"$work/install.log"
"$work/prefix/bin/lockstep" --version
# "@prefix@" stands for the folder of the installation.
strict="-Wall -Wextra -Wpedantic -Werror"  # as in strict_compilation.py
arguments=("${@//@prefix@/$work/prefix}")
configure() {  # configure EXAMPLE BUILD CMAKE_ARGUMENT...
  local folder=$source/examples/$1 into=$2
  shift 2
  cmake -S "$folder" -B "$work/$into" -G Ninja "-DCMAKE_CXX_FLAGS=$strict" "${arguments[@]}" "$@" \
    >"$work/configure-$into.log"
}
# LibTorch's headers would take most of the time, so that all examples use them precompiled, with the flags of the
# first one. build_without_cmake, which does not, shows that lockstep.h includes what it needs.
precompiled=$work/precompiled/libtorch.h
precompile() {
  mkdir -p "$(dirname "$precompiled")"
  echo '#include <torch/torch.h>' >"$precompiled"
  # CMake reads this after project(), so that its own compiler checks do not use LibTorch.
  echo "add_compile_options(-include $precompiled)" >"$work/precompiled/options.cmake"
  configure 01_distributed_data_parallel flags
  local command
  command=$(ninja -C "$work/flags" -t commands distributed | sed -n 's/ -MD .*//p')
  # shellcheck disable=SC2086
  $command -x c++-header "$precompiled" -o "$precompiled.gch"
}
build() {  # build EXAMPLE BUILD
  configure "$1" "$2" "-DCMAKE_PROJECT_INCLUDE=$work/precompiled/options.cmake"
  cmake --build "$work/$2" -j 1
}
build_without_cmake() {  # with the flags of pkg-config
  local flags
  flags=$(PKG_CONFIG_PATH=$(dirname "$(find "$work/prefix" -name lockstep.pc)") pkg-config --cflags --libs lockstep)
  # shellcheck disable=SC2086
  "${CXX:-g++}" -std=c++20 "$source/examples/01_distributed_data_parallel/main.cpp" $flags -o "$work/without-cmake"
}
configure_downloader() {  # names no LibTorch: the installation knows the one that it was built with
  unnamed cmake -S "$source/tests/install/downloader" -B "$work/downloader" -G Ninja \
    "-DCMAKE_PREFIX_PATH=$work/prefix" >"$work/configure-downloader.log"
}
unnamed() { env -u CMAKE_PREFIX_PATH -u Torch_DIR -u Torch_ROOT "$@"; }
# A project or an environment that names a LibTorch gets that one.
uses_the_named_libtorch() {
  local named=$work/named/share/cmake/Torch way log=$work/configure-named.log
  mkdir -p "$named"
  echo 'message(FATAL_ERROR "this is the named one")' >"$named/TorchConfig.cmake"
  for way in "-DCMAKE_PREFIX_PATH=$work/prefix;$work/named" "-DTorch_DIR=$named" "-DTorch_ROOT=$work/named" \
    "CMAKE_PREFIX_PATH=$work/named" "Torch_DIR=$named" "Torch_ROOT=$work/named"; do
    rm -rf "$work/named-build"
    case $way in
      -D*) unnamed cmake "-Dlockstep_ROOT=$work/prefix" "$way" -S "$source/tests/install/downloader" -B "$work/named-build" ;;
      *) unnamed env "$way" cmake "-Dlockstep_ROOT=$work/prefix" -S "$source/tests/install/downloader" -B "$work/named-build" ;;
    esac >"$log" 2>&1 || true
    grep -q 'this is the named one' "$log" || { cat "$log"; echo "$way did not choose LibTorch"; return 1; }
  done
}
configure_downloader
uses_the_named_libtorch
# Two at a time, because each takes one processor and up to 2 GB.
build_without_cmake &
without_cmake=$!
precompile
wait "$without_cmake"
{
  build 01_distributed_data_parallel build
  build 03_training_on_many_ranks training
  build 05_training_loop loop
  build 07_data_parallel parallel
} &
others=$!
build 02_communication communication
build 04_loading_data loading
build 06_sgd_by_hand sgd
build 08_resnet50_on_two_devices resnet50
build 09_trainer trainer
if [[ -f $build/lockstep_download.so ]]; then cmake --build "$work/downloader" -j 1; fi
wait "$others"
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
