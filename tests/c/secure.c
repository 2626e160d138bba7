/* Opens the library in the file that its argument names and initialises the driver; prints the answer, and if it runs with more
 * rights than its user.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <sys/auxv.h>

int main(int argc, char **argv)
{
    void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (!library) {
        fprintf(stderr, "%s\n", argc == 2 ? dlerror() : "usage: secure FILE");
        return 2;
    }
    unsigned (*init)(unsigned) = (unsigned (*)(unsigned))dlsym(library, "cuInit");
    printf("%u, secure %lu\n", init(0), getauxval(AT_SECURE));
    return 0;
}
