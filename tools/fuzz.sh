#!/usr/bin/env bash
# Runs libFuzzer over the parsers of lockstep/formats, under AddressSanitizer and UBSan.
#
#   tools/fuzz.sh [SECONDS [FORMAT...]]     300 seconds for each of the formats by default
#
# Needs Clang with libFuzzer (on Debian 12: clang-14 libfuzzer-14-dev libclang-rt-14-dev) and the packages
# of tools/bootstrap.sh; CXX names another Clang. Begins from the seeds that the tests begin from, keeps what
# it finds new in build/fuzz/corpus/FORMAT, and leaves inputs that fail in build/fuzz/FORMAT-*. Ends with 1
# where one failed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seconds=${1:-300}
shift || true
formats=("$@")
if [[ ${#formats[@]} == 0 ]]; then
  formats=(checkpoint_manifest cifar cifar100 gzip idx jpeg pack pickle png safetensors torch_file)
fi
compiler=${CXX:-$(command -v clang++ || command -v clang++-14 || true)}
if [[ -z $compiler ]]; then
  echo "error: there is no clang++; install clang-14 libfuzzer-14-dev libclang-rt-14-dev, or set CXX" >&2
  exit 2
fi

# "fuzzer-no-link" gives the library the counters that steer libFuzzer; the targets alone have its main().
cmake -S . -B build/fuzz -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_COMPILER="$compiler" \
  -DLOCKSTEP_WITH_TORCH=OFF -DLOCKSTEP_SANITIZE=address,undefined,fuzzer-no-link >build/fuzz.log ||
  { cat build/fuzz.log >&2; exit 1; }
cmake --build build/fuzz --target write_seeds "${formats[@]/#/fuzz_}"
build/fuzz/write_seeds build/fuzz/seeds

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
