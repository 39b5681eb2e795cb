#!/usr/bin/env bash
# Installs the shared library of a build into an empty prefix, whichever kind the build installs by default, and checks
# its version and the names that it exports. Builds examples 01 and 09 and the downloader's user against it with CMake,
# and runs them. Then makes a package of it, moves that, and links example 01 to it with pkg-config.
#
# Usage: shared.sh BUILD_DIR SOURCE_DIR WORK_DIR TORCH_ROOT CMAKE_ARGUMENT...
set -euo pipefail
build=$1 source=$2 work=$3 torch_root=$4
shift 4
rm -rf "$work"
mkdir -p "$work"
fail() {
  echo "error: $*" >&2
  exit 1
}

# What both kinds install has no component.
for component in Unspecified shared; do
  cmake --install "$build" --component "$component" --prefix "$work/prefix" >>"$work/install.log"
done
library=$(find "$work/prefix" -name liblockstep.so)
[[ -n $library ]] || fail "no liblockstep.so in $work/prefix"
archives=$(find "$work/prefix" -name '*.a')
[[ -z $archives ]] || fail "static libraries are installed, too: $archives"

# Before 1.0 a minor version may change the interface.
version=$(sed -n 's/^project(lockstep VERSION \([0-9.]*\).*/\1/p' "$source/CMakeLists.txt")
soname=liblockstep.so.$(cut -d. -f1 <<<"$version")
if [[ $version == 0.* ]]; then soname=liblockstep.so.$(cut -d. -f1-2 <<<"$version"); fi
[[ $(readlink -f "$library") == */liblockstep.so.$version ]] || fail "liblockstep.so is $(readlink -f "$library")"
readelf -d "$library" | grep SONAME | grep -F "[$soname]" || fail "the soname is not $soname"

# Functions, variables and types of namespace lockstep. The letters before N: run-time type information, virtual tables,
# thunks, guards and wrappers of variables; those after it: qualifiers of a member function.
nm -D --defined-only "$library" | sed 's/.* //' >"$work/exported.txt"
ours='^_Z(T[ISVTC]|T[hvc][0-9n_hv]*_|GV|GR|T[HW]|GVZ|Z)?N[VKRO]*8lockstep'
if grep -vE "$ours" "$work/exported.txt" | c++filt | grep .; then fail "liblockstep.so exports these, which are not ours"; fi
exported=$(wc -l <"$work/exported.txt")
((exported > 500)) || fail "liblockstep.so exports only $exported names"
# A function of a header that is not installed is in the objects, but not exported.
internal='lockstep::module_file('
nm -C --defined-only "$build/rooms/core/liblockstep_core.a" | grep -F "$internal" || fail "there is no $internal...)"
if c++filt <"$work/exported.txt" | grep -F "$internal"; then fail "liblockstep.so exports an internal name"; fi
# The modules export C functions only.
for module in "$build"/lockstep_*.so; do
  [[ -f $module ]] || continue
  names=$(nm -D --defined-only "$module" | sed 's/.* //')
  grep -q '^lockstep_' <<<"$names" || fail "$module exports none of its functions"
  if grep -v '^lockstep_' <<<"$names" | c++filt | grep .; then fail "$module exports these"; fi
done
echo "liblockstep.so: $(stat -L -c %s "$library") bytes, $exported exported names"

# build_examples.sh uses the same target of the static libraries.
targets=$(find "$work/prefix" -name lockstepSharedTargets.cmake)
grep -F -A3 'set_target_properties(lockstep::pch ' "$targets" >"$work/pch.txt" || fail "$targets does not define lockstep::pch"
grep -F 'INTERFACE_LINK_LIBRARIES "lockstep::lockstep"' "$work/pch.txt" || fail "lockstep::pch: $(cat "$work/pch.txt")"
grep -F 'INTERFACE_PRECOMPILE_HEADERS "<torch/torch.h>;<lockstep/lockstep.h>"' "$work/pch.txt" ||
  fail "lockstep::pch: $(cat "$work/pch.txt")"

arguments=("${@//@prefix@/$work/prefix}")
build() {  # build FOLDER TARGET
  cmake -S "$source/$1" -B "$work/$2" -G Ninja "${arguments[@]}" >"$work/configure-$2.log"
  cmake --build "$work/$2" -j 1 --target "$2" || fail "$1 cannot be built"
}
package() {
  # The kind is chosen here instead of in a build of its own.
  cpack --config "$build/CPackConfig.cmake" -B "$work/package" -G TGZ \
    -D "CPACK_INSTALL_CMAKE_PROJECTS=$build;lockstep;Unspecified;/;$build;lockstep;shared;/" >"$work/cpack.log"
  mkdir "$work/unpacked"
  tar -xzf "$work"/package/*.tar.gz -C "$work/unpacked"
  mv "$work"/unpacked/* "$work/moved"
  if readelf -d "$(find "$work/moved" -name liblockstep.so)" | grep -E 'R(UN)?PATH.*(\[|:)/'; then
    fail "the run path of the package leads to folders of this machine"
  fi
  "$work/moved/bin/lockstep-link-libtorch" "$torch_root"
  # The package has the same headers as the prefix, and must find them all. Compiling them again would take 20 s.
  local flags libraries
  flags=$(PKG_CONFIG_PATH=$(dirname "$(find "$work/moved" -name lockstep.pc)") pkg-config --cflags lockstep)
  libraries=$(PKG_CONFIG_PATH=$(dirname "$(find "$work/moved" -name lockstep.pc)") pkg-config --libs lockstep)
  diff -r "$work/prefix/include/lockstep" "$work/moved/include/lockstep"
  # shellcheck disable=SC2086
  "${CXX:-g++}" -std=c++20 $flags -E "$source/examples/01_distributed_data_parallel/main.cpp" -o /dev/null
  # shellcheck disable=SC2086
  "${CXX:-g++}" "$work/distributed/CMakeFiles/distributed.dir/main.cpp.o" $libraries -o "$work/from-package"
}
# Two at a time, because each takes one processor and up to 2 GB.
{
  build examples/01_distributed_data_parallel distributed
  package
} &
packaged=$!
build examples/09_trainer trainer
build tests/install/downloader downloader
wait "$packaged" || fail "the package of the shared library cannot be used: $(cat "$work/cpack.log")"

for program in trainer/trainer distributed/distributed from-package downloader/downloader; do
  readelf -d "$work/$program" | grep NEEDED | grep -qF "[$soname]" || fail "$program is not linked to $soname"
done
if LD_LIBRARY_PATH='' ldd "$work/from-package" | grep liblockstep | grep -vF "$work/moved/"; then
  fail "from-package is linked to another liblockstep.so"
fi
"$work/distributed/distributed" | tail -1 | grep -E 'loss 0\.[012]'
"$work/from-package" | tail -1 | grep -E 'loss 0\.[012]'
"$work/trainer/trainer" | grep -x 'group of 1 over single: all results are right'
"$work/prefix/bin/lockstep" run --nproc-per-node 2 "$work/trainer/trainer" |
  grep -x 'group of 2 over shm: all results are right'
# Nothing listens on port 1. The library finds the downloader by its own run path.
if [[ -f $build/lockstep_download.so ]]; then
  env -u LOCKSTEP_DATA -u LOCKSTEP_MODULE_DIR LOCKSTEP_MIRROR=http://127.0.0.1:1 no_proxy=127.0.0.1 \
    XDG_CACHE_HOME="$work/cache" "$work/downloader/downloader"
fi
