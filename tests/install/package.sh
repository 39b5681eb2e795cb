#!/usr/bin/env bash
# Makes both binary packages, installs each into an empty place, and builds example 01 against it as a user's project
# would: the .tar.gz in a folder, with CMake; the .deb in its own root, with pkg-config (build_examples.sh also compiles
# with the flags of pkg-config, and this script only preprocesses and links).
#
# Usage: package.sh BUILD_DIR SOURCE_DIR WORK_DIR TORCH_ROOT
set -euo pipefail
build=$1 source=$2 work=$3 torch_root=$4
rm -rf "$work"
mkdir -p "$work"
example=$source/examples/01_distributed_data_parallel

cpack --config "$build/CPackConfig.cmake" -B "$work/packages" >"$work/cpack.log" || { cat "$work/cpack.log"; exit 1; }
archive=$(ls "$work"/packages/*.tar.gz)
deb=$(ls "$work"/packages/*.deb)
ls -l "$work/packages"

# Checks a package installed to $1 before it is linked to a LibTorch, links it, and checks it again.
link() {  # link PREFIX
  local linker=$1/bin/lockstep-link-libtorch
  if "$linker" "$work" 2>"$work/link.err"; then exit 1; fi
  grep "is not LibTorch's folder: it has no lib/libtorch.so" "$work/link.err"
  mkdir -p "$work/old/lib" "$work/old/include/torch/headeronly"
  touch "$work/old/lib/libtorch.so"
  printf '#define TORCH_VERSION_MAJOR 1\n#define TORCH_VERSION_MINOR 13\n' >"$work/old/include/torch/headeronly/version.h"
  if "$linker" "$work/old" 2>"$work/link.err"; then exit 1; fi
  grep "was built with LibTorch .*, but $work/old has 1.13" "$work/link.err"
  "$linker" "$torch_root"
  "$1/bin/lockstep" --version | grep -E '^lockstep [0-9.]+ \((commit [0-9a-f]{12}, )?LibTorch [0-9.]+'
}
# Checks that no path of the build machine is left in the package's texts and library search paths.
without_places() {  # without_places PREFIX
  if grep -rIl -e "$build" -e "$source" -e "$torch_root" "$1" --include=*.cmake --include=*.pc --include=*.h; then exit 1; fi
  if readelf -d "$1/bin/lockstep" | grep -E 'R(UN)?PATH' | grep -v '\[\$ORIGIN/[^/]*[^]]*\]$'; then exit 1; fi
  if readelf -d "$1/bin/lockstep" | grep -E 'R(UN)?PATH' | grep -F "$torch_root"; then exit 1; fi
}
trains() { "$1" | tail -1 | grep -E 'loss 0\.[012]'; }

mkdir "$work/unpacked_torch"  # a name that must not be taken for LibTorch's
tar -xzf "$archive" -C "$work/unpacked_torch"
prefix=$(echo "$work"/unpacked_torch/*)
without_places "$prefix"
link "$prefix"
cmake -S "$example" -B "$work/example" -G Ninja "-DCMAKE_PREFIX_PATH=$prefix" >"$work/configure.log"
cmake --build "$work/example" -j 1 --target distributed
trains "$work/example/distributed"

root=$work/root
mkdir -p "$root"/var/lib/dpkg/{info,updates}
touch "$root"/var/lib/dpkg/{status,available}
# The root contains nothing else, not even the shell that would configure the package (it calls ldconfig).
dpkg --root="$root" --force-not-root --log="$work/dpkg.log" --unpack "$deb" >"$work/dpkg.out" 2>&1 ||
  { cat "$work/dpkg.out"; exit 1; }
dpkg-query --admindir="$root/var/lib/dpkg" -W lockstep
dpkg-query --admindir="$root/var/lib/dpkg" -L lockstep | grep -x /usr/bin/lockstep-link-libtorch
dpkg-deb --field "$deb" Depends | grep -E 'libc6.*libjpeg|libjpeg.*libc6'
without_places "$root/usr"
link "$root/usr"
# The .deb has the same headers, and must find them all. Compiling them again would take 20 s.
flags=$(PKG_CONFIG_PATH=$(dirname "$(find "$root" -name lockstep.pc)") pkg-config --cflags lockstep)
libraries=$(PKG_CONFIG_PATH=$(dirname "$(find "$root" -name lockstep.pc)") pkg-config --libs lockstep)
diff -r "$prefix/include/lockstep" "$root/usr/include/lockstep"
# shellcheck disable=SC2086
"${CXX:-g++}" -std=c++20 $flags -E "$example/main.cpp" -o /dev/null
# shellcheck disable=SC2086
"${CXX:-g++}" "$work/example/CMakeFiles/distributed.dir/main.cpp.o" $libraries -o "$work/from-deb"
trains "$work/from-deb"

# The package must still work after it has been moved.
mv "$prefix" "$work/moved"
"$work/moved/bin/lockstep" --version
