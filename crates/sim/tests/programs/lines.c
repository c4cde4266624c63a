// Loads one byte of each line of memory, in order, several times over.
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **arguments) {
    long bytes = atol(arguments[1]), rounds = atol(arguments[2]);
    volatile char *memory = aligned_alloc(64, bytes);
    long sum = 0;
    for (long round = 0; round < rounds; round++)
        for (long at = 0; at < bytes; at += 64) sum += memory[at];
    printf("%ld\n", sum);
    return 0;
}
