#!/usr/bin/env bash
# Installs what a Debian or Ubuntu machine needs to build Lockstep. Every `make` command runs it. If nothing is
# missing, it takes a tenth of a second and prints nothing.
#
#   tools/bootstrap.sh          packages, LibTorch, Python for the oracle tests
#   tools/bootstrap.sh cuda     also the newest CUDA build of LibTorch, with torchvision, in .deps/cuda
#   tools/bootstrap.sh kit      also the CUDA build of LibTorch that `make gpu-kit` builds with, in .deps/kit
#   tools/bootstrap.sh clang    also clang++, which `make test-all` compiles our headers with
#   tools/bootstrap.sh dali     also NVIDIA DALI for the loader, in .deps/dali
#   tools/bootstrap.sh slurm    also Slurm, which a test of the launch script starts
#   tools/bootstrap.sh chromium also Chromium, which a test opens the report with
#   tools/bootstrap.sh peers    also torchvision's Python part in .deps/peers, for the programs in benchmarks/peers
#   tools/bootstrap.sh zoo      also timm and transformers in .deps/zoo, whose models are compared with exported programs
#   tools/bootstrap.sh oracles  also the Python packages that read our files in `make test-all`, MLflow in .deps/mlflow
#
# Leaves in .deps/:  cmake-args  CMake's arguments, one per line (where LibTorch is, and DALI if installed)
#                    venv/       Python with torch, numpy, safetensors and expecttest, and clang-format
#
# Variables: CMAKE_PREFIX_PATH     prefixes to look for LibTorch in, separated by : or ;
#            LOCKSTEP_TORCH_INDEX  package index that has CPU wheels of torch, asked beside pip's own
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

torch_version=2.13.0
peers_torchvision_version=0.28.0  # for torch 2.13; built for CUDA, so that only its Python part is used
cuda_torch_version=2.14.1         # the newest CUDA build that a released torchvision matches
cuda_torchvision_version=0.29.1
kit_torch_version=2.11.0          # the oldest, which the machines with a GPU have
kit_torchvision_version=0.26.0
dali_version=2.4.0                # its symbols are versioned, so that another version requires a rebuild of the module
wandb_version=0.25.1              # has a reader in Python, unlike 0.31
mlflow_version=3.17.2
cuda_headers=('nvidia-cuda-crt==13.0.*' 'nvidia-cuda-cccl==13.0.*')
cuda_compiler=('nvidia-cuda-nvcc==13.0.*' 'nvidia-nvvm==13.0.*')
oldest_torch=2.11                 # as in cmake/LockstepLibTorch.cmake
packages=(g++ cmake ninja-build ccache dpkg-dev pkg-config python3-dev python3-venv iproute2 libarchive-dev libbenchmark-dev
          libcli11-dev libcurl4-openssl-dev libdeflate-dev libgloo-dev libgmock-dev libgtest-dev
          libhwy-dev libisal-dev libjpeg-dev libpng-dev libprotozero-dev libssl-dev libxxhash-dev nlohmann-json3-dev zlib1g-dev)
oracle_packages=(onnx==1.23.2 onnxruntime==1.32.0 pandas==3.1.1 tensorboard==2.21.0
                 "wandb==$wandb_version" zizmor==1.32.0)  # installed with torch in .deps/venv
clang_format_version=19.1.7  # other versions format some lines differently
# MLflow's server without the dependencies that only its models need, which take half a gigabyte.
mlflow_packages=("mlflow-skinny==$mlflow_version" "mlflow-tracing==$mlflow_version" Flask Flask-CORS aiohttp alembic
                 cryptography docker graphene gunicorn huey numpy pandas sqlalchemy)

# Without their dependencies on servers of models, which models with random weights do not need.
zoo_packages=(timm==1.0.31 transformers==5.24.0 huggingface_hub==2.4.0 tokenizers regex tqdm httpx httpx2 httpcore httpcore2
              truststore hpack brotli anyio h11 sniffio idna typer-slim shellingham hf_xet safetensors)

say() { printf 'bootstrap: %s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# Reads what apt-get and pip print, and prints what they download.
tell_downloads() {
  local line
  while IFS= read -r line; do
    if [[ $line =~ ^Need\ to\ get\ (.+)\ of\ archives ]]; then
      say "  downloading ${BASH_REMATCH[1]} of Debian packages"
    elif [[ $line =~ ^\ *Downloading\ (.*/)?([^/]+)\ \((.+)\)$ ]]; then
      say "  downloading ${BASH_REMATCH[2]} (${BASH_REMATCH[3]})"
    elif [[ $line == "Installing collected packages: "* ]]; then
      say "  unpacking ${line#*: }"
    fi
  done
}

# follow LOG COMMAND...: runs apt-get or pip and shows what it downloads. On a terminal they draw their own progress, and
# LOG gets their errors; otherwise each download is a line, and LOG gets everything.
follow() {
  local log=$1
  shift
  if [[ -t 2 ]]; then
    "$@" >&2 2>"$log"
  else
    "$@" 2>&1 | tee "$log" | tell_downloads
  fi
}

install_packages() {
  if ! command -v dpkg-query >/dev/null; then
    return  # not Debian: CMake reports what is missing
  fi
  local missing
  missing=$(comm -23 <(printf '%s\n' "${packages[@]}" | sort) \
                     <(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${packages[@]}" 2>/dev/null |
                       sed -n 's/^installed //p' | sort) | tr '\n' ' ')
  if [[ -z ${missing// } ]]; then
    return
  fi
  local as_root=()
  if [[ $(id -u) != 0 ]]; then
    sudo -n true 2>/dev/null || die "install these packages, then try again: sudo apt-get install $missing"
    as_root=(sudo -n)
  fi
  say "installing Debian packages: $missing"
  # shellcheck disable=SC2086
  { "${as_root[@]}" apt-get update -qq >.deps/apt.log 2>&1 &&
    follow .deps/apt.log "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
      apt-get install -y --no-install-recommends $missing; } ||
    die "apt-get could not install $missing: $(grep -m1 '^E:' .deps/apt.log || tail -1 .deps/apt.log)"
}

not_older() { printf '%s\n' "$1" "$2" | sort --check=quiet --version-sort; }  # not_older OLDEST VERSION

# Prints the folder of the LibTorch in CMAKE_PREFIX_PATH if it is recent enough.
torch_in_prefix_path() {
  local prefix place version
  while read -r prefix; do
    for place in "$prefix"/share/cmake "$prefix"/lib/cmake "$prefix"; do
      if [[ -z $prefix || ! -f $place/Torch/TorchConfig.cmake ]]; then
        continue
      fi
      version=$(sed -n 's/^set(PACKAGE_VERSION "\(.*\)").*/\1/p' "$place/Torch/TorchConfigVersion.cmake" \
                2>/dev/null || true)
      if ! not_older "$oldest_torch" "$version"; then
        say "LibTorch ${version:-(version unknown)} in $prefix is too old, at least $oldest_torch is needed; looking elsewhere"
        continue
      fi
      realpath "$place/Torch/../../.."
      return
    done
  done < <(tr ':;' '\n\n' <<<"${CMAKE_PREFIX_PATH:-}")
}

# Prints the folder of torch in the user's Python if it is recent enough. Does not import torch, which would take
# seconds.
torch_in_python() {
  command -v python3 >/dev/null || return 0
  python3 - "$oldest_torch" <<'PYTHON' 2>/dev/null || true
import importlib.metadata, importlib.util, sys
number = lambda text: [int(part) for part in text.split("+")[0].split(".")[:2]]
spec = importlib.util.find_spec("torch")
if spec and number(importlib.metadata.version("torch")) >= number(sys.argv[1]):
    print(spec.submodule_search_locations[0])
PYTHON
}

make_venv() {  # make_venv FOLDER
  if [[ ! -x $1/bin/python ]] || ! has_package "$1" pip; then
    python3 -m venv --clear "$1" >.deps/venv.log 2>&1 || die "python3 -m venv failed: $(tail -1 .deps/venv.log)"
  fi
}

pip_install() {  # pip_install FOLDER PACKAGE...
  local venv=$1 index=()
  shift
  if [[ -n ${LOCKSTEP_TORCH_INDEX:-} ]]; then
    index=(--extra-index-url "$LOCKSTEP_TORCH_INDEX")
  fi
  say "installing $* into $venv"
  local attempt
  for attempt in 1 2 3; do  # pip does not resume a download that breaks off
    if follow .deps/pip.log "$venv/bin/python" -m pip install --disable-pip-version-check "${index[@]}" "$@"; then
      return
    fi
    if ((attempt == 3)) || grep -q 'No matching distribution' .deps/pip.log; then
      break
    fi
    say "pip failed; trying again"
    sleep 10
  done
  die "pip could not install $* ($(grep -m1 '^ERROR' .deps/pip.log || tail -1 .deps/pip.log))"
}

# has_package FOLDER NAME [VERSION]: checks for RECORD, which pip writes last, so that an incomplete installation does
# not count.
has_package() { compgen -G "$1/lib/python3*/site-packages/$2-${3:-}[.+0-9]*dist-info/RECORD" >/dev/null; }

# Prints CMake's arguments for the LibTorch in folder $1, and for DALI if it is installed.
cmake_args() {
  if has_package .deps/dali nvidia_dali_cuda130 "$dali_version"; then
    echo "-DLOCKSTEP_DALI_ROOT=$(realpath .deps/dali/lib/python3*/site-packages)/nvidia/dali"
  fi
  if [[ ! -f $1/lib/libtorch_cuda.so ]]; then
    echo "-DCMAKE_PREFIX_PATH=$1/share/cmake"
    return
  fi
  # TorchConfig.cmake of a CUDA build requires the whole CUDA toolkit; the libraries beside it suffice.
  echo "-DLOCKSTEP_TORCH_ROOT=$1"
  echo "-DLOCKSTEP_CUDA=AUTO"
}

install_torch() {
  local torch python_torch site
  torch=$(torch_in_prefix_path)
  python_torch=$(torch_in_python)
  [[ -n $torch ]] || torch=$python_torch
  make_venv .deps/venv
  site=$(echo .deps/venv/lib/python3*/site-packages)
  if [[ -n $python_torch ]]; then
    # The oracle tests import the user's torch, together with our own numpy, safetensors and expecttest.
    dirname "$python_torch" >"$site/lockstep-torch.pth"
  else
    rm -f "$site/lockstep-torch.pth"
  fi
  if [[ -z $torch ]]; then
    if ! has_package .deps/venv torch "$torch_version"; then
      [[ -n ${LOCKSTEP_TORCH_INDEX:-} ]] ||
        say "set LOCKSTEP_TORCH_INDEX to an index of CPU wheels to save the download of CUDA libraries"
      pip_install .deps/venv "torch==$torch_version"
    fi
    torch=$(realpath "$site/torch")
  fi
  if ! has_package .deps/venv clang_format "$clang_format_version"; then  # for `make format` and its check
    pip_install .deps/venv "clang-format==$clang_format_version"
  fi
  # PyTorch's own tests, which run with our backend, import expecttest.
  if ! has_package .deps/venv safetensors || ! has_package .deps/venv numpy || ! has_package .deps/venv expecttest; then
    pip_install .deps/venv numpy safetensors expecttest
  fi
  local args
  args=$(cmake_args "$torch")
  # Written only when it changes, because a newer file makes the Makefile configure again.
  [[ -f .deps/cmake-args && $(<.deps/cmake-args) == "$args" ]] || echo "$args" >.deps/cmake-args
}

install_cuda_torch() {  # install_cuda_torch FOLDER TORCH_VERSION TORCHVISION_VERSION
  make_venv "$1"
  if ! has_package "$1" torch "$2" || ! has_package "$1" torchvision "$3" || ! has_package "$1" numpy ||
     ! has_package "$1" safetensors; then
    pip_install "$1" "torch==$2" "torchvision==$3" numpy safetensors
  fi
  # Headers that cuda_runtime.h includes but torch does not require.
  if ! has_package "$1" nvidia_cuda_crt 13 || ! has_package "$1" nvidia_cuda_cccl 13; then
    pip_install "$1" "${cuda_headers[@]}"
  fi
  # The wheels' libraries are for CUDA 13, and so must be the compiler.
  if ! { nvcc --version || /usr/local/cuda/bin/nvcc --version; } 2>/dev/null | grep -q 'release 13' &&
     ! has_package "$1" nvidia_cuda_nvcc 13; then
    pip_install "$1" "${cuda_compiler[@]}"
  fi
}

install_dali() {
  make_venv .deps/dali
  if ! has_package .deps/dali nvidia_dali_cuda130 "$dali_version" || ! has_package .deps/dali numpy; then
    pip_install .deps/dali "nvidia-dali-cuda130==$dali_version" numpy
  fi
}

install_oracles() {
  (install_peers) || say "without torchvision, PyTorch's programs of bench table are not tested"
  local each version missing=()
  for each in "${oracle_packages[@]}"; do
    version=${each#"${each%%==*}"}
    has_package .deps/venv "${each%%==*}" "${version#==}" || missing+=("$each")
  done
  if [[ ${#missing[@]} != 0 ]]; then
    pip_install .deps/venv "${missing[@]}"
  fi
  # MLflow pins versions of its dependencies, and therefore has its own folder.
  make_venv .deps/mlflow
  if ! has_package .deps/mlflow mlflow "$mlflow_version"; then
    pip_install .deps/mlflow "${mlflow_packages[@]}"
    pip_install .deps/mlflow --no-deps "mlflow==$mlflow_version"
  fi
}

# torchvision's wheel is built for CUDA builds of torch, and its import fails with ours without the help of
# benchmarks/peers/vision.py. It therefore has its own folder, from which everything in .deps/venv is visible.
install_peers() {
  make_venv .deps/peers
  if ! has_package .deps/peers torchvision "$peers_torchvision_version"; then
    pip_install .deps/peers --no-deps "torchvision==$peers_torchvision_version"
  fi
  has_package .deps/peers pillow || pip_install .deps/peers pillow
  local seen=(.deps/venv/lib/python3*/site-packages)
  [[ -d .deps/dali ]] && seen+=(.deps/dali/lib/python3*/site-packages)  # for the peers' --loader dali
  realpath "${seen[@]}" >"$(echo .deps/peers/lib/python3*/site-packages)/venv.pth"
}

install_zoo() {
  (install_peers) || say "without torchvision, exported models of the zoo are not tested"
  make_venv .deps/zoo
  if ! has_package .deps/zoo timm 1.0.31 || ! has_package .deps/zoo transformers 5.24.0; then
    pip_install .deps/zoo --no-deps "${zoo_packages[@]}"
  fi
}

mkdir -p .deps
if [[ ${1:-} == clang ]]; then
  packages+=(clang)
fi
if [[ ${1:-} == slurm ]]; then
  packages+=(slurm-wlm munge)
fi
if [[ ${1:-} == chromium ]]; then
  packages+=(chromium fonts-dejavu-core)
fi
install_packages
# Before LibTorch, because its arguments for CMake are written together with DALI's.
if [[ ${1:-} == dali ]]; then
  install_dali
fi
install_torch
if [[ ${1:-} == cuda ]]; then
  install_cuda_torch .deps/cuda "$cuda_torch_version" "$cuda_torchvision_version"
fi
if [[ ${1:-} == kit ]]; then
  install_cuda_torch .deps/kit "$kit_torch_version" "$kit_torchvision_version"
fi
if [[ ${1:-} == peers ]]; then
  install_peers
fi
if [[ ${1:-} == zoo ]]; then
  install_zoo
fi
if [[ ${1:-} == oracles ]]; then
  install_oracles
fi
