// Address space: heap, anonymous mappings, mappings of files, permissions, moves.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static sigjmp_buf back;
static volatile long fault_address;

static void on_fault(int signal, siginfo_t *information, void *context) {
    (void)context;
    fault_address = (long)information->si_addr;
    siglongjmp(back, signal);
}

#define FAULTS(access) ({ int got = sigsetjmp(back, 1); if (!got) { access; } got; })

int main(int argc, char **argv) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    char *start = sbrk(0);
    char *more = sbrk(100000);
    printf("heap grows: %d, zero: %d\n", more == start, more[99999]);
    memset(more, 1, 100000);
    sbrk(-100000);
    printf("heap shrinks: %d\n", sbrk(0) == start);
    char *memory = mmap(NULL, 5 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memory[0] = 'a';
    memory[4 * 4096] = 'b';
    printf("protect: %d\n", mprotect(memory + 4096, 4096, PROT_READ));
    printf("store to read-only: %d", FAULTS(*(volatile char *)(memory + 4096 + 5) = 1));
    printf(" at offset %ld\n", fault_address - (long)memory);
    printf("load: %d\n", FAULTS((void)*(volatile char *)(memory + 4096)));
    printf("unmap: %d\n", munmap(memory + 2 * 4096, 4096));
    printf("load unmapped: %d\n", FAULTS((void)*(volatile char *)(memory + 2 * 4096)));
    printf("others: %c %c\n", memory[0], memory[4 * 4096]);
    printf("hole: %d %s\n", mprotect(memory, 5 * 4096, PROT_READ), strerror(errno));
    char *moved = mmap(NULL, 4096 * 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    strcpy(moved, "content that moves");
    moved = mremap(moved, 4096 * 2, 4096 * 1000, MREMAP_MAYMOVE);
    printf("moved: %s, %d\n", moved, moved[4096 * 999]);
    moved = mremap(moved, 4096 * 1000, 4096, 0);
    printf("shrunk: %s\n", moved);
    printf("discard: %d", madvise(moved, 4096, MADV_DONTNEED));
    printf(", now %d\n", moved[0]);
    char path[200];
    snprintf(path, sizeof path, "%s/mapped", argv[1]);
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (int page = 0; page < 3; page++) {
        char bytes[4096];
        memset(bytes, 'A' + page, sizeof bytes);
        if (write(file, bytes, sizeof bytes) != sizeof bytes) return 1;
    }
    char *copy = mmap(NULL, 2 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 4096);
    copy[0] = 'x';
    char byte;
    pread(file, &byte, 1, 4096);
    printf("private: %c%c, file: %c\n", copy[0], copy[4096], byte);
    char *shared = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    shared[5] = 's';
    pread(file, &byte, 1, 5);
    printf("shared store, read: %c\n", byte);
    pwrite(file, "w", 1, 8000);
    printf("write, shared load: %c\n", shared[8000]);
    shared[6] = 't';
    printf("msync: %d\n", msync(shared, 4096, MS_SYNC));
    shared[7] = 'u';
    munmap(shared, 3 * 4096);
    char bytes[9] = "";
    pread(file, bytes, 8, 0);
    printf("after unmapping: %s\n", bytes);
    printf("bad: %d", mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, 99, 0) == MAP_FAILED);
    printf(" %s\n", strerror(errno));
    printf("none: %d\n", mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
    char *fixed = mmap(memory, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    printf("fixed: %d, %d\n", fixed == memory, fixed[0]);
    unsigned (*code)(void) = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned instructions[2] = {0x02a00513, 0x00008067}; // li a0, 42; ret
    memcpy(code, instructions, sizeof instructions);
    mprotect(code, 4096, PROT_READ | PROT_EXEC);
    __builtin___clear_cache((char *)code, (char *)code + 8);
    printf("code: %u\n", code());
    void *blocks[200];
    for (int round = 0; round < 5; round++) {
        for (int index = 0; index < 200; index++) blocks[index] = calloc(1, 100 + index * 997);
        for (int index = 0; index < 200; index++) free(blocks[(index * 7) % 200]);
    }
    printf("large: %d\n", malloc(1UL << 50) == NULL);
    unlink(path);
    return 0;
}
