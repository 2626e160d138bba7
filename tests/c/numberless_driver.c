/* The simulated driver without numbers of contexts, as drivers were before CUDA 12.0.
 *
 * The loader finds the rest in libsimcuda.so, which this library needs.
 */
enum { NOT_FOUND = 500 };

int cuCtxGetId(void *context, unsigned long long *number) {
    (void)context, (void)number;
    return NOT_FOUND;
}
