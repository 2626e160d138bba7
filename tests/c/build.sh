#!/bin/sh
# Builds the C conformance programs into a folder:
#
#     tests/c/build.sh FOLDER
#
# They are linked to a stub libcuda.so.1 in FOLDER/stub, which is used for linking alone.
set -eu
out=${1:?usage: build.sh FOLDER}
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
mkdir -p "$out"
"$root/include/c/make-stub.sh" "$out/stub"

compile() {
    ${CC:-cc} -std=gnu11 -O2 -Wall -Wextra -Werror -pthread -I"$root/include/c" \
        -I"$root/examples/kernels" -Wa,-I"$root/examples/kernels" "$@"
}

compile -o "$out/doors_link" "$here/doors_link.c" "$out/stub/libcuda.so.1"
compile -o "$out/doors_dlopen" "$here/doors_dlopen.c"
compile -o "$out/doors_procaddress" "$here/doors_procaddress.c"
compile -o "$out/deep" "$here/deep.c"
compile -DLIB -shared -fPIC -o "$out/libdeep.so" "$here/deep.c" "$out/stub/libcuda.so.1"
compile -shared -fPIC -o "$out/libwrap_dlsym.so" "$here/wrap_dlsym.c"
compile -shared -fPIC -o "$out/libwrap_dlopen.so" "$here/wrap_dlopen.c"
compile -o "$out/fork_quiet" "$here/fork_quiet.c"
compile -shared -fPIC -o "$out/libwrap_alloc.so" "$here/wrap_alloc.c"
compile -o "$out/first_call" "$here/first_call.c" "$out/stub/libcuda.so.1"
compile -DLIB -shared -fPIC -o "$out/libfirst_call.so" "$here/first_call.c" "$out/stub/libcuda.so.1"
compile -shared -fPIC -o "$out/libslow_driver.so" "$here/slow_driver.c"
compile -o "$out/requests" "$here/requests.c"
compile -o "$out/known_calls" "$here/known_calls.c" "$out/stub/libcuda.so.1"

# Programs for tests of sharing; they compute on the CPU what the device should have.
mkdir -p "$out/sharing"
for source in "$here"/sharing/*.c; do
    compile -ffp-contract=off -I"$root/examples/c" -o "$out/sharing/$(basename "$source" .c)" \
        "$source" "$out/stub/libcuda.so.1" -lm
done
