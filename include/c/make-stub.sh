#!/bin/sh
# Makes a libcuda.so.1 to link programs against where no driver is installed.
#
#     include/c/make-stub.sh FOLDER
#
# It has every name of ../symbols/cuda.json and nothing behind them: a program that is linked
# to it asks the loader for libcuda.so.1 and gets the real one, or the simulated one, at run time.
# Should the stub itself be loaded, each call answers CUDA_ERROR_STUB_LIBRARY (34).
set -eu
folder=${1:?usage: make-stub.sh FOLDER}
symbols=$(dirname "$0")/../symbols/cuda.json
mkdir -p "$folder"
sed -n 's/.*"\(cu[A-Za-z0-9_]*\)"\],\{0,1\}$/int \1(void) { return 34; }/p' "$symbols" | sort -u |
    ${CC:-cc} -x c -shared -fPIC -nostdlib -fno-builtin -Wl,-soname,libcuda.so.1 \
        -o "$folder/libcuda.so.1" -
ln -sf libcuda.so.1 "$folder/libcuda.so"
