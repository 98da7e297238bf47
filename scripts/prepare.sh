# Sourced by ./quickstart and ./run-tests: packages, CUDA toolkit, nccl.h, build.
# Needs bash; the caller has done `set -euo pipefail` and stands in the top folder.

# Everything that the build and the tests take from the distribution (Debian 12, Ubuntu 24.04 or newer).
PACKAGES=(
  build-essential       # g++ >= 12
  cmake ninja-build
  libspdlog-dev libfmt-dev                # log of the engine
  libcli11-dev nlohmann-json3-dev         # the nccl-shunt command
  catch2 libboost-context-dev             # tests: framework, fibers of the emulated GPUs
  libjemalloc2                            # tests: another library that is often preloaded
  python3                                 # tests and result tables
  ca-certificates
)

say() { printf '== %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}
can_install() {
  command -v apt-get >/dev/null &&
    { [ "$(id -u)" = 0 ] || { command -v sudo >/dev/null && sudo -n true 2>/dev/null; }; }
}

install_packages() {
  local missing=() p
  for p in "$@"; do
    dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || missing+=("$p")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  if ! can_install; then
    say "cannot install packages here (apt-get as root or by sudo without a password is needed)"
    say "if the build fails, install these: ${missing[*]}"
    return 0
  fi
  say "installing ${missing[*]}"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq </dev/null ||
    say "apt-get update failed; going on with the package lists that are there"
  as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null >/dev/null
}

# Sets CUDA_HOME.
find_toolkit() {
  local nvcc
  for nvcc in "${CUDA_HOME:-}/bin/nvcc" "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc \
              /usr/local/cuda-*/bin/nvcc; do
    if [ -x "$nvcc" ]; then
      CUDA_HOME=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
      export CUDA_HOME
      return 0
    fi
  done
  die "nvcc not found. Install NVIDIA's CUDA toolkit 12 or newer (https://developer.nvidia.com/cuda-downloads;
  the parts cuda-nvcc, cuda-cudart-dev and cuda-driver-dev are enough) or set CUDA_HOME to its folder."
}

# Prints the folder of nccl.h, or fails.
nccl_include() {
  local d wheel
  wheel=$(python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[0])' 2>/dev/null || true)
  for d in "${NCCL_HOME:-}/include" "$CUDA_HOME/include" "$CUDA_HOME/targets/x86_64-linux/include" \
           "$CUDA_HOME/targets/sbsa-linux/include" /usr/include /usr/local/include \
           "$wheel/include" "$PWD/build/nccl/nvidia/nccl/include"; do
    if [ -f "$d/nccl.h" ]; then echo "$d"; return 0; fi
  done
  return 1
}

# nccl.h is in no package of Debian or Ubuntu and not in every toolkit. Exports NCCL_HOME where it must.
find_nccl() {
  local include
  if ! include=$(nccl_include); then
    if can_install && [ -n "$(apt-cache madison libnccl-dev 2>/dev/null)" ]; then
      install_packages libnccl2 libnccl-dev  # NVIDIA's repository is set up on this machine
    else
      say "nccl.h not found; taking it from the NCCL wheel, into build/nccl"
      python3 -m pip --version >/dev/null 2>&1 || install_packages python3-pip
      mkdir -p build
      python3 -m pip install --quiet --no-deps --target build/nccl \
        "nvidia-nccl-cu$(nvcc_major)" </dev/null || true
    fi
    include=$(nccl_include) || die "nccl.h not found. One of these brings it:
  apt-get install libnccl-dev            (NVIDIA's package repository)
  python3 -m pip install nvidia-nccl-cu$(nvcc_major)   (the wheel that PyTorch uses too)
  or set NCCL_HOME to a folder with include/nccl.h"
  fi
  NCCL_INCLUDE=$include
  case $include in
    */nvidia/nccl/include) export NCCL_HOME=${include%/include} ;;
  esac
}
nvcc_major() { "$CUDA_HOME/bin/nvcc" --version | sed -n 's/.*release \([0-9]*\)\..*/\1/p'; }

# Prints the folder of a libnccl.so.2, or nothing.
nccl_library_folder() {
  local d
  for d in "${NCCL_HOME:-/nonexistent}/lib" "${NCCL_INCLUDE%/include}/lib" \
           "${NCCL_INCLUDE%/include}/lib64"; do
    if [ -f "$d/libnccl.so.2" ]; then echo "$d"; return 0; fi
  done
  ldconfig -p 2>/dev/null | sed -n 's/.*libnccl\.so\.2 .*=> \(.*\)\/libnccl.*/\1/p' | head -n 1
}

gpu_count() {
  local n
  n=$(nvidia-smi --list-gpus 2>/dev/null | grep -c '^GPU ') || true
  echo "${n:-0}"
}

# prepare_and_build PRESET [TARGET...]: all targets if none is named; sets BUILD.
prepare_and_build() {
  local preset=$1
  shift
  local targets=()
  [ $# -eq 0 ] || targets=(--target "$@")
  install_packages "${PACKAGES[@]}"
  find_toolkit
  find_nccl
  say "CUDA toolkit $CUDA_HOME, nccl.h in $NCCL_INCLUDE"
  cmake --preset "$preset" -DSHUNT_NCCL_INCLUDE="$NCCL_INCLUDE" </dev/null
  cmake --build --preset "$preset" --parallel "${JOBS:-2}" "${targets[@]}" </dev/null
  BUILD=$PWD/build
  case $preset in
    default | ci) ;;
    *) BUILD=$PWD/build-$preset ;;
  esac
}
