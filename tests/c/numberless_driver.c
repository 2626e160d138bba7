/* The simulated driver without numbers of contexts, as drivers were before CUDA 12.0.
 *
 * What is not here the loader finds in libsimcuda.so, which this one needs.
 */
enum { NOT_FOUND = 500 };

int cuCtxGetId(void *context, unsigned long long *number) {
    (void)context, (void)number;
    return NOT_FOUND;
}
