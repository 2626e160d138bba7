/* Has memory that Baton does not move, and obeys lines on standard input, one answer each.
 *
 *     unmanaged
 *
 *     ready PID          when there is a context
 *     array MIB          an array; `made` or `answer CODE`
 *     small COUNT        so many arrays of 64 KiB; `made` or `answer CODE`
 *     mipmap MIB         a mipmapped array whose first level takes so much; `made` or `answer CODE`
 *     managed MIB        managed memory; `made` or `answer CODE`
 *     external MIB       memory of another interface; `made` or `answer CODE`
 *     plain MIB          memory of cuMemAlloc; `made` or `answer CODE`
 *     drop               gives the last one back; `dropped` or `answer CODE`
 *     info               `free MIB total MIB`
 *     release            gives the context up; `released`
 *     quit               gives all back and ends with `result unmanaged CHECKSUM ok`
 */
#include "work.h"

/* The rest of the header knows no arrays. */
struct flat {
    size_t width, height;
    unsigned format, channels;
};
struct deep {
    size_t width, height, depth;
    unsigned format, channels, flags;
};
struct external {
    int kind;
    uint64_t handle[2], size;
    unsigned flags, reserved[16];
};
CUresult cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned flags);
CUresult cuArrayCreate_v2(CUarray *out, const struct flat *shape);
CUresult cuArrayDestroy(CUarray array);
CUresult cuMipmappedArrayCreate(void **out, const struct deep *shape, unsigned levels);
CUresult cuMipmappedArrayDestroy(void *array);
CUresult cuImportExternalMemory(void **out, const struct external *handle);
CUresult cuDestroyExternalMemory(void *memory);

enum { MOST = 4096, UNSIGNED_INT8 = 1 };
enum kind { ARRAY, MIPMAP, MANAGED, EXTERNAL, PLAIN };

static struct {
    enum kind kind;
    CUdeviceptr what;
} made[MOST];
static unsigned count;

static CUresult make(enum kind kind, size_t bytes) {
    CUdeviceptr what = 0;
    CUresult result;
    struct flat flat = {MIB, bytes / MIB, UNSIGNED_INT8, 1};
    struct deep deep = {MIB, bytes / MIB, 0, UNSIGNED_INT8, 1, 0};
    struct external external = {.kind = 1, .size = bytes};
    if (bytes < MIB) flat.width = bytes, flat.height = 0;
    REQUIRE(count < MOST, "too many");
    switch (kind) {
    case ARRAY: result = cuArrayCreate_v2((CUarray *)&what, &flat); break;
    case MIPMAP: result = cuMipmappedArrayCreate((void **)&what, &deep, 3); break;
    case MANAGED: result = cuMemAllocManaged(&what, bytes, 1); break;
    case EXTERNAL: result = cuImportExternalMemory((void **)&what, &external); break;
    default: result = cuMemAlloc(&what, bytes);
    }
    if (!result) {
        made[count].kind = kind;
        made[count++].what = what;
    }
    return result;
}

static CUresult drop(void) {
    REQUIRE(count, "there is none");
    count--;
    void *handle = (void *)(uintptr_t)made[count].what;
    switch (made[count].kind) {
    case ARRAY: return cuArrayDestroy(handle);
    case MIPMAP: return cuMipmappedArrayDestroy(handle);
    case EXTERNAL: return cuDestroyExternalMemory(handle);
    default: return cuMemFree(made[count].what);
    }
}

static void obey(char *line) {
    static const char *const kinds[] = {"array", "mipmap", "managed", "external", "plain"};
    char *word = strtok(line, " \n"), *argument = strtok(NULL, "\n");
    size_t number = argument ? strtoul(argument, NULL, 10) : 0;
    CUresult result = CUDA_SUCCESS;
    if (!word) return;
    for (unsigned i = 0; i < COUNT_OF(kinds); i++) {
        if (strcmp(word, kinds[i])) continue;
        result = make((enum kind)i, number * MIB);
        if (!result) printf("made\n");
        goto answered;
    }
    if (strcmp(word, "small") == 0) {
        while (number-- && !result) result = make(ARRAY, 64 << 10);
        if (!result) printf("made\n");
    } else if (strcmp(word, "drop") == 0) {
        result = drop();
        if (!result) printf("dropped\n");
    } else if (strcmp(word, "info") == 0) {
        size_t available, total;
        result = cuMemGetInfo(&available, &total);
        if (!result) printf("free %zu total %zu\n", available / MIB, total / MIB);
    } else if (strcmp(word, "release") == 0) {
        result = cuDevicePrimaryCtxRelease(0);
        count = 0;
        if (!result) printf("released\n");
    } else if (strcmp(word, "quit") == 0) {
        while (count) CHECK(drop());
        exit(finish("unmanaged", CHECKSUM_START));
    } else {
        printf("what is %s?\n", word);
    }
answered:
    if (result) printf("answer %d\n", (int)result);
}

int main(int argc, char **argv) {
    CUcontext context;
    read_options(argc, argv, NULL, 0);
    setvbuf(stdout, NULL, _IOLBF, 0);
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    printf("ready %d\n", (int)getpid());
    char line[512];
    while (fgets(line, sizeof line, stdin)) obey(line);
    return 0;
}
