/* Runs kernels: reads jobs from standard input and writes what the kernels leave to standard output.
 *
 * A job: code, buffers, scalars, tile range; see `put` in host.rs, which writes them. Numbers are little-endian. With LINKED
 * defined, kernels are linked in, and a job has the kernel's number instead of code. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct args {
    uint8_t *const *bufs;
    const int64_t *scalars;
    uint8_t *scratch;
    int64_t tile_lo, tile_hi;
};

static void get(void *to, size_t bytes) {
    if (bytes && fread(to, bytes, 1, stdin) != 1) {
        fputs("runner: input ends early\n", stderr);
        exit(2);
    }
}

static uint32_t number(void) {
    uint32_t value;
    get(&value, sizeof value);
    return value;
}

typedef uint32_t kernel(const struct args *);
#ifdef LINKED
extern kernel *const linked[];
#endif

int main(void) {
    for (uint32_t jobs = number(); jobs > 0; jobs--) {
#ifdef LINKED
        kernel *entry = linked[number()];
#else
        uint32_t size = number();
        void *code = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (code == MAP_FAILED)
            return 3;
        get(code, size);
        if (mprotect(code, size, PROT_READ | PROT_EXEC) != 0)
            return 3;
        __builtin___clear_cache(code, (char *)code + size);
        kernel *entry = (kernel *)code;
#endif

        uint32_t count = number();
        uint8_t *bufs[64];
        uint32_t sizes[64];
        if (count > 64)
            return 4;
        for (uint32_t i = 0; i < count; i++) {
            sizes[i] = number();
            bufs[i] = malloc(sizes[i] + 1);
            get(bufs[i], sizes[i]);
        }
        int64_t scalars[16];
        uint32_t given = number();
        if (given > 16)
            return 4;
        get(scalars, given * sizeof *scalars);
        struct args args = {bufs, scalars, NULL, 0, 0};
        get(&args.tile_lo, sizeof args.tile_lo);
        get(&args.tile_hi, sizeof args.tile_hi);

        uint32_t status = entry(&args);
        fwrite(&status, sizeof status, 1, stdout);
        for (uint32_t i = 0; i < count; i++) {
            fwrite(bufs[i], sizes[i], 1, stdout);
            free(bufs[i]);
        }
#ifndef LINKED
        munmap(code, size);
#endif
    }
    return 0;
}
