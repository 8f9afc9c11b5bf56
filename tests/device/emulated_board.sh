#!/usr/bin/env bash
# An emulated aarch64 board: the agent under qemu-user, in an arm64 root made of Debian packages and published wheels.
#
#   tests/device/emulated_board.sh build DIR         makes the root (apt and pip; nothing of this system is changed)
#   tests/device/emulated_board.sh serve DIR ARGS    runs `visualquant-agent serve ARGS` in it
#
# Needs qemu-user-static, apt, and Debian 12 sources; root is not needed.
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
command=${1:?build or serve}
dir=${2:?a folder}
shift 2
root=$dir/root
site=$dir/site
packages=(
  python3.11 python3.11-minimal libpython3.11-minimal libpython3.11-stdlib libc6 libgcc-s1 libstdc++6 zlib1g libexpat1
  libssl3 libffi8 libbz2-1.0 liblzma5 libsqlite3-0 libuuid1 libncursesw6 libtinfo6 libreadline8 libdb5.3 libcrypt1
)

build() {
  mkdir -p "$root" "$site" "$dir"/apt/{state/lists/partial,cache/archives/partial,packages}
  : > "$dir/apt/state/status"
  options=(
    -o "APT::Architecture=arm64" -o "APT::Architectures=arm64" -o "Dir::State=$dir/apt/state"
    -o "Dir::State::status=$dir/apt/state/status" -o "Dir::Cache=$dir/apt/cache" -o "APT::Sandbox::User="
    -o "Acquire::Languages=none"
  )
  apt-get "${options[@]}" -qq update
  (cd "$dir/apt/packages" && apt-get "${options[@]}" -qq download "${packages[@]}")
  for package in "$dir"/apt/packages/*.deb; do dpkg-deb -x "$package" "$root"; done
  # Debian 12 has /lib as a link to /usr/lib; packages bring both.
  if [ ! -L "$root/lib" ] && [ -d "$root/lib" ]; then
    cp -a "$root/lib/." "$root/usr/lib/" && rm -r "$root/lib" && ln -s usr/lib "$root/lib"
  fi
  python3 -m pip download --quiet --disable-pip-version-check --only-binary=:all: --implementation cp \
    --python-version 3.11 --platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64 \
    --platform manylinux_2_17_aarch64 --platform manylinux2014_aarch64 --dest "$dir/wheels" \
    ${VISUALQUANT_BOARD_RUNTIME:-onnxruntime} numpy grpcio grpcio-health-checking protobuf
  for wheel in "$dir"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$site"; done
  # ONNX Runtime looks for its processor in these files, and ends where it finds another machine's.
  mkdir -p "$root/proc" "$root/sys/devices/system/cpu"
  printf '%s\n' 'processor	: 0' 'BogoMIPS	: 50.00' \
    'Features	: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp' \
    'CPU implementer	: 0x41' 'CPU architecture: 8' 'CPU variant	: 0x3' 'CPU part	: 0xd0c' 'CPU revision	: 1' '' \
    > "$root/proc/cpuinfo"
  echo 0 | tee "$root/sys/devices/system/cpu/possible" > "$root/sys/devices/system/cpu/present"
  touch "$dir/built"
}

serve() {
  exec qemu-aarch64-static -cpu neoverse-n1 -L "$root" -E "PYTHONPATH=$here/agent/src:$site" -E "PYTHONHOME=$root/usr" \
    -E "PYTHONDONTWRITEBYTECODE=1" "$root/usr/bin/python3.11" -m visualquant_agent serve "$@"
}

case $command in
  build) [ -e "$dir/built" ] || build ;;
  serve) serve "$@" ;;
  *) echo "build or serve" >&2; exit 2 ;;
esac
