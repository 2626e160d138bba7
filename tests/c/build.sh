#!/bin/sh
# Builds the C conformance programs into a folder:
#
#     tests/c/build.sh FOLDER
#
# They are linked to a stub libcuda.so.1 in FOLDER/stub, which is used for linking alone.
set -eu
out=${1:?usage: build.sh FOLDER}
mkdir -p "$out"
out=$(cd "$out" && pwd)
# Names are relative from here on: the folder of the repository may have a space in its path.
cd "$(dirname "$0")/../.."
include/c/make-stub.sh "$out/stub"

# Goes on while it is compiled, with so many at once; `compiled` waits for all. None needs another's output.
at_once=4
running=
compile() {
    ${CC:-cc} -std=gnu11 -O2 -Wall -Wextra -Werror -pthread -Iinclude/c \
        -Iexamples/kernels -Wa,-Iexamples/kernels "$@" &
    running="$running $!"
    # shellcheck disable=SC2086
    set -- $running
    if [ $# -ge $at_once ]; then
        wait "$1"
        shift
        running=$*
    fi
}
compiled() {
    for process in $running; do wait "$process"; done
    running=
}

compile -o "$out/doors_link" tests/c/doors_link.c "$out/stub/libcuda.so.1"
compile -o "$out/doors_dlopen" tests/c/doors_dlopen.c
compile -o "$out/doors_procaddress" tests/c/doors_procaddress.c
compile -o "$out/deep" tests/c/deep.c
compile -DLIB -shared -fPIC -o "$out/libdeep.so" tests/c/deep.c "$out/stub/libcuda.so.1"
compile -shared -fPIC -o "$out/libwrap_dlsym.so" tests/c/wrap_dlsym.c
compile -shared -fPIC -o "$out/libwrap_dlopen.so" tests/c/wrap_dlopen.c
compile -o "$out/fork_quiet" tests/c/fork_quiet.c
compile -shared -fPIC -o "$out/libwrap_alloc.so" tests/c/wrap_alloc.c
compile -o "$out/first_call" tests/c/first_call.c "$out/stub/libcuda.so.1"
compile -DLIB -shared -fPIC -o "$out/libfirst_call.so" tests/c/first_call.c "$out/stub/libcuda.so.1"
compile -shared -fPIC -o "$out/libslow_driver.so" tests/c/slow_driver.c
# The program that loads it names the simulated driver's place.
echo | ${CC:-cc} -shared -Wl,-soname,libsimcuda.so -o "$out/stub/libsimcuda.so" -x c -
compile -shared -fPIC -o "$out/libcostly_driver.so" tests/c/costly_driver.c \
    -Wl,--no-as-needed "$out/stub/libsimcuda.so"
compile -shared -fPIC -o "$out/libhesitant_driver.so" tests/c/hesitant_driver.c \
    -Wl,--no-as-needed "$out/stub/libsimcuda.so"
compile -shared -fPIC -o "$out/libnumberless_driver.so" tests/c/numberless_driver.c \
    -Wl,--no-as-needed "$out/stub/libsimcuda.so"
compile -shared -fPIC -o "$out/librefusing_driver.so" tests/c/refusing_driver.c \
    -Wl,--no-as-needed "$out/stub/libsimcuda.so"
compile -shared -fPIC -o "$out/libnewer_driver.so" tests/c/newer_driver.c \
    -Wl,--no-as-needed "$out/stub/libsimcuda.so"
compile -shared -fPIC -o "$out/libpinning_driver.so" tests/c/pinning_driver.c \
    -Wl,--no-as-needed "$out/stub/libsimcuda.so"
# A driver that hands every call on: all names but those that it has a function of its own for.
nm -D --defined-only "$out/stub/libcuda.so.1" | sed -n 's/.* T \(cu.*\)/NAME(\1)/p' |
    grep -vxE 'NAME\(cu(Init|DriverGetVersion|GetProcAddress(_v2)?)\)' >"$out/stub/driver_names.h"
compile -I"$out/stub" -shared -fPIC -o "$out/libloader_driver.so" tests/c/loader_driver.c
compile -DHELPER -shared -fPIC -o "$out/libloader_helper.so" tests/c/loader_driver.c
# The simulated driver with the names alone that an older one has, and those of its own.
older() {
    mkdir -p "$out/stub/$1"
    sed -n 's/^\["[^"]*", "[^"]*", \([0-9]*\), "\(cu[^"]*\)"\],*$/\1 \2/p' include/symbols/cuda.json |
        awk -v newest="$1" '$1 <= newest { print "NAME(" $2 ")" }' | sort -u |
        grep -vxE 'NAME\(cu(Init|DriverGetVersion|GetProcAddress(_v2)?)\)' >"$out/stub/$1/driver_names.h"
    printf 'NAME(simcuda%s)\n' GetProcess GetProcessOn ResumeProcess SetTimeSlice >>"$out/stub/$1/driver_names.h"
    version=$1
    shift
    compile "-DOPENS=(char *)\"libsimcuda.so\"" "$@" -I"$out/stub/$version" -shared -fPIC \
        -o "$out/libdriver_$version.so" tests/c/loader_driver.c
}
older 12040
older 11080 -DBEFORE_12
compile -I"$out/stub" -shared -fPIC -o "$out/libwitness_driver.so" tests/c/witness_driver.c
compile -o "$out/hookless" tests/c/hookless.c
compile -shared -fPIC -fno-builtin -o "$out/libfirst_malloc.so" tests/c/first_malloc.c

# Programs with AddressSanitizer, where the compiler has its runtime as a library.
if echo 'int main(void) { return 0; }' | ${CC:-cc} -fsanitize=address -x c -o "$out/stub/asan" - 2>/dev/null; then
    mkdir -p "$out/asan"
    compile -fsanitize=address -o "$out/asan/doors_link" tests/c/doors_link.c "$out/stub/libcuda.so.1"
    compile -fsanitize=address -o "$out/asan/doors_dlopen" tests/c/doors_dlopen.c
    compile -fsanitize=address -Wno-use-after-free -o "$out/asan/broken" tests/c/asan_broken.c "$out/stub/libcuda.so.1"
    compile -fsanitize=address -o "$out/asan/with_options" tests/c/doors_link.c tests/c/asan_options.c \
        "$out/stub/libcuda.so.1"
fi

# A management library, and a program that asks it.
mkdir -p "$out/nvml"
compile -shared -fPIC -Wl,-soname,libnvidia-ml.so.1 -o "$out/nvml/libnvidia-ml.so.1" tests/c/fake_nvml.c
compile -DASK -o "$out/ask_memory" tests/c/fake_nvml.c "$out/stub/libcuda.so.1"
compile -o "$out/requests" tests/c/requests.c
compile -o "$out/joining" tests/c/joining.c
compile -o "$out/secure" tests/c/secure.c
compile -o "$out/ask_status" tests/c/ask_status.c
compile -Iexamples/c -o "$out/allocations" tests/c/allocations.c "$out/stub/libcuda.so.1" -lm
compile -o "$out/known_calls" tests/c/known_calls.c "$out/stub/libcuda.so.1"

# Programs for tests of sharing; they compute the device's expected contents on the CPU.
mkdir -p "$out/sharing"
for source in tests/c/sharing/*.c; do
    compile -ffp-contract=off -Iexamples/c -o "$out/sharing/$(basename "$source" .c)" \
        "$source" "$out/stub/libcuda.so.1" -lm
done

# Legal programs of unusual kinds.
mkdir -p "$out/legal"
for source in tests/c/legal/*.c; do
    compile -Iexamples/c -Wa,-Itests/c/legal -o "$out/legal/$(basename "$source" .c)" "$source" \
        "$out/stub/libcuda.so.1" -lm
done

# Those of them that name functions of CUDA 12, as they are made for drivers of before.
mkdir -p "$out/legal/before_12"
for name in aliases reach sources; do
    compile -DBATON_CUDA_BEFORE_12 -Iexamples/c -Wa,-Itests/c/legal -o "$out/legal/before_12/$name" "tests/c/legal/$name.c" \
        "$out/stub/libcuda.so.1" -lm
done

# Programs that ask for the driver's rules for memory.
mkdir -p "$out/rules"
for source in tests/c/rules/*.c; do
    compile -Iexamples/c -o "$out/rules/$(basename "$source" .c)" "$source" "$out/stub/libcuda.so.1" -lm
done
compiled
