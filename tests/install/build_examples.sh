#!/usr/bin/env bash
# Installs Lockstep into an empty prefix and builds the examples against it as a user's project would, for
# run_examples.sh and the tests of single examples.
#
# Usage: build_examples.sh BUILD_DIR SOURCE_DIR WORK_DIR CMAKE_ARGUMENT...
set -euo pipefail
build=$1 source=$2 work=$3
shift 3
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
# The headers would take most of the time, so that all examples use those that example 01 precompiles, which is linked to
# lockstep::pch for this purpose. build_without_cmake, which does not, shows that lockstep.h includes what it needs.
header=CMakeFiles/distributed.dir/cmake_pch.hxx
precompile() {
  # CMake reads these files after project(), so that its own compiler checks do not use the header.
  cat >"$work/with-pch.cmake" <<'END'
cmake_language(DEFER CALL target_link_libraries distributed PRIVATE lockstep::pch)
cmake_language(DEFER CALL target_precompile_headers single REUSE_FROM distributed)
END
  echo "add_compile_options(-include $work/build/$header)" >"$work/with-header.cmake"
  configure 01_distributed_data_parallel build "-DCMAKE_PROJECT_INCLUDE=$work/with-pch.cmake"
  cmake --build "$work/build" -j 1 --target "$header.gch"
}
build() {  # build EXAMPLE BUILD
  configure "$1" "$2" "-DCMAKE_PROJECT_INCLUDE=$work/with-header.cmake"
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
  cmake --build "$work/build" -j 1
  build 03_training_on_many_ranks training
  build 05_training_loop loop
  build 07_data_parallel parallel
  build 10_language_model language_model
} &
others=$!
build 02_communication communication
build 04_loading_data loading
build 06_sgd_by_hand sgd
build 08_resnet50_on_two_devices resnet50
build 09_trainer trainer
build 11_two_inputs two_inputs
build 12_python_model python_model
if [[ -f $build/lockstep_download.so ]]; then cmake --build "$work/downloader" -j 1; fi
wait "$others"
