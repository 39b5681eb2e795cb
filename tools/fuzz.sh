#!/usr/bin/env bash
# Runs libFuzzer on the parsers of lockstep/formats and lockstep/program, with AddressSanitizer and UBSan.
#
#   tools/fuzz.sh [SECONDS [FORMAT...]]     by default 300 seconds for each format
#
# Needs Clang with libFuzzer (on Debian 12: clang-14 libfuzzer-14-dev libclang-rt-14-dev) and the packages of
# tools/bootstrap.sh; CXX selects another Clang. Starts from the seeds of the tests, keeps new inputs in
# build/fuzz/corpus/FORMAT, and leaves failing inputs in build/fuzz/FORMAT-*. Exits with 1 if an input failed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seconds=${1:-300}
shift || true
formats=("$@")
if [[ ${#formats[@]} == 0 ]]; then
  formats=(checkpoint_manifest cifar cifar100 exported_graph gzip idx jpeg npy pack pickle png pt2_file safetensors
           size_expression torch_file)
fi
compiler=${CXX:-$(command -v clang++ || command -v clang++-14 || true)}
if [[ -z $compiler ]]; then
  echo "error: there is no clang++; install clang-14 libfuzzer-14-dev libclang-rt-14-dev, or set CXX" >&2
  exit 2
fi

# "fuzzer-no-link" adds to the library the counters that guide libFuzzer; only the targets get its main().
cmake -S . -B build/fuzz -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_COMPILER="$compiler" \
  -DLOCKSTEP_WITH_TORCH=OFF -DLOCKSTEP_SANITIZE=address,undefined,fuzzer-no-link >build/fuzz.log ||
  { cat build/fuzz.log >&2; exit 1; }
cmake --build build/fuzz --target write_seeds write_program_seeds "${formats[@]/#/fuzz_}"
build/fuzz/write_seeds build/fuzz/seeds
build/fuzz/write_program_seeds build/fuzz/seeds

status=0
for format in "${formats[@]}"; do
  mkdir -p "build/fuzz/corpus/$format"
  echo "fuzz_$format: $seconds seconds"
  build/fuzz/"fuzz_$format" -max_total_time="$seconds" -rss_limit_mb=512 -malloc_limit_mb=64 -timeout=10 \
    -max_len=20000 -print_final_stats=1 -artifact_prefix="build/fuzz/$format-" \
    "build/fuzz/corpus/$format" "build/fuzz/seeds/$format" 2>"build/fuzz/$format.log" || status=1
  grep -E '^(SUMMARY|Done|stat::(number_of_executed_units|peak_rss_mb)|.*(ERROR|Test unit written))' \
    "build/fuzz/$format.log" || true
done
exit $status
