#!/bin/sh
# Builds the C examples into a folder:
#
#     examples/c/build.sh FOLDER
#
# They are linked to libcuda.so.1 by name. Without a driver on this machine the names come from a
# stub, which is made in FOLDER/stub and is used for linking alone. CUDA_HOME= takes cuda.h of that
# toolkit in place of the project's own header.
set -eu
out=${1:?usage: build.sh FOLDER}
mkdir -p "$out"
out=$(cd "$out" && pwd)
# Names are relative from here on: the folder of the repository may have a space in its path.
cd "$(dirname "$0")/../.."
include/c/make-stub.sh "$out/stub"

if [ -n "${CUDA_HOME:-}" ]; then
    header="-DUSE_CUDA_H -I$CUDA_HOME/include"
else
    header="-Iinclude/c"
fi
for source in examples/c/*.c; do
    # No contraction: the CPU's results are compared with the GPU's bit for bit.
    # shellcheck disable=SC2086
    ${CC:-cc} -std=gnu11 -O2 -Wall -Wextra -Werror -ffp-contract=off -pthread $header \
        -Iexamples/kernels -Wa,-Iexamples/kernels \
        -o "$out/$(basename "$source" .c)" "$source" "$out/stub/libcuda.so.1" -lm
done
