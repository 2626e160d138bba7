/* The simulated driver, in which no stream can wait for a word: the call answers as where that is not supported.
 *
 * A program reaches this library as its driver. The loader finds the rest in libsimcuda.so, which this library needs.
 */
enum { NOT_SUPPORTED = 801 };

int cuStreamWaitValue32_v2(void *stream, unsigned long long address, unsigned value, unsigned flags) {
    (void)stream, (void)address, (void)value, (void)flags;
    return NOT_SUPPORTED;
}
