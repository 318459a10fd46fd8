#!/bin/bash
# The NEON kernels, built by a cross compiler and run by an emulator (Debian: gcc-aarch64-linux-gnu libc6-dev-arm64-cross
# qemu-user). Skipped (77) where these are missing.
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
cc=aarch64-linux-gnu-gcc qemu=$(command -v qemu-aarch64 || command -v qemu-aarch64-static || true)
command -v $cc >/dev/null && [ -n "$qemu" ] || { echo "neon: no cross compiler or no emulator; skipped"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$source/src"
$cc -std=c11 -O2 -D_GNU_SOURCE -ffp-contract=off -Wall -Wextra -Wconversion -Wno-sign-conversion -Wshadow -Werror -static \
  -I. -I../include -I../tests/cross -I../tests/unit -o "$work/test-kernels" ../tests/unit/test_kernels.c \
  base/{arena,cancel,error,map,mem,pool,rng,tensor}.c device/device.c \
  device/cpu/{attention,cpu,detect,limits,listen,neon,product,rowwise,transform16,vocoder,weight}.c device/cpu/scalar/*.c -lm -lpthread
"$qemu" "$work/test-kernels" 20261129 8 # rounds: the emulator is slow
