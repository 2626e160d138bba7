#!/bin/sh
# Makes pages.ptx from pages.cu. Needs nvcc, from PATH or from NVCC=.
#
# The PTX is for compute capability 7.5, the oldest that CUDA 13 compiles for, and says that it is
# written in PTX 7.0: the kernel uses nothing newer, and so drivers from CUDA 11.0 on take it. When
# ptxas lies beside nvcc (or PTXAS= names it), it is asked whether that holds.
set -eu
cd "$(dirname "$0")"
nvcc=${NVCC:-nvcc}
new=$(mktemp)
trap 'rm -f "$new" "$new.cubin"' EXIT

"$nvcc" --ptx -arch=compute_75 -o "$new" pages.cu
sed -i 's/^\.version .*/.version 7.0/' "$new"

ptxas=${PTXAS:-$(dirname "$(command -v "$nvcc")")/ptxas}
if [ -x "$ptxas" ]; then
    for arch in sm_75 sm_90; do
        "$ptxas" -v -arch "$arch" -o "$new.cubin" "$new"
    done
fi
cat "$new" >pages.ptx
