#!/bin/sh
# Makes reach.ptx from reach.cu, as examples/kernels/build.sh makes its own. Needs nvcc, from PATH or from NVCC=.
set -eu
cd "$(dirname "$0")"
new=$(mktemp)
trap 'rm -f "$new"' EXIT
"${NVCC:-nvcc}" --ptx -arch=compute_75 -o "$new" reach.cu
# Variables, so that programs can look them up.
sed -i 's/^\.version .*/.version 7.0/; s/^\.global/.visible .global/' "$new"
cat "$new" >reach.ptx
