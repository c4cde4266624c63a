/* Integers: primes by the sieve of Eratosthenes, and a checksum with multiplications and divisions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT 200000

static unsigned char composite[LIMIT];

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 3;
    unsigned long sum = 0;
    unsigned count = 0;
    for (int round = 0; round < rounds; round++) {
        memset(composite, 0, sizeof composite);
        count = 0;
        for (unsigned i = 2; i < LIMIT; i++) {
            if (composite[i])
                continue;
            count++;
            sum = sum * 31 + i % 97 + (sum >> 7) / i;
            for (unsigned long j = (unsigned long)i * i; j < LIMIT; j += i)
                composite[j] = 1;
        }
    }
    printf("%u primes, checksum %lx\n", count, sum);
    return 0;
}
