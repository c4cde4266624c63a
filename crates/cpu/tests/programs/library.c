/* The C library: printing, memory, strings, variable arguments, jumps over functions, qsort, 128-bit numbers, atomics. */
#include <errno.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static jmp_buf back;
static atomic_long counter;
static _Atomic unsigned byte;

static long sum(int count, ...) {
    va_list list;
    va_start(list, count);
    long total = 0;
    while (count--)
        total += va_arg(list, long);
    va_end(list);
    return total;
}

static int compare(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int main(int argc, char **argv) {
    printf("%d arguments:", argc - 1);
    qsort(argv + 1, argc - 1, sizeof *argv, compare);
    for (int i = 1; i < argc; i++)
        printf(" %s", argv[i]);
    printf("\n%ld %s %5.2f|%-8s|%08x\n", sum(4, 1L, -2L, 3L, 40L), strerror(ENOENT), 3.14159, "left", 0xbeef);
    if (setjmp(back) == 0) {
        printf("jump\n");
        longjmp(back, 1);
    }
    char *blocks[100];
    for (int i = 0; i < 100; i++) {
        blocks[i] = malloc(i * 1000 + 1);
        memset(blocks[i], i, i * 1000 + 1);
    }
    unsigned long total = 0;
    for (int i = 0; i < 100; i++) {
        total += blocks[i][i * 500];
        free(blocks[i]);
    }
    for (int i = 0; i < 1000; i++) {
        atomic_fetch_add(&counter, i);
        long expected = atomic_load(&counter);
        atomic_compare_exchange_strong(&counter, &expected, expected + 1);
        atomic_fetch_xor(&byte, i);
    }
    __int128 wide = (__int128)0x123456789abcdefUL * 0xfedcba987654321UL / 1000003;
    unsigned char misaligned[32] = "0123456789abcdefghijklmnopqrstu";
    unsigned long word;
    memcpy(&word, misaligned + 3, 8);
    volatile unsigned long *odd = (volatile unsigned long *)(misaligned + 5);
    *odd += 0x0101010101010101UL;
    printf("%lu %ld %u %lx%016lx %lx %s\n", total, (long)counter, byte, (long)(wide >> 64), (long)wide, word, misaligned);
    struct tm moment = {.tm_year = 103, .tm_mon = 4, .tm_mday = 20};
    char text[64];
    strftime(text, sizeof text, "%A, %d %B %Y", &moment);
    printf("%s %ld %g\n", text, strtol("-0x7fff", NULL, 0), strtod("1.25e-3", NULL));
    fprintf(stderr, "to the other stream\n");
    return 42;
}
