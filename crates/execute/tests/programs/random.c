// Random numbers of the system.
#include <stdio.h>
#include <sys/auxv.h>
#include <sys/random.h>

int main(void) {
    unsigned long numbers[2];
    if (getrandom(numbers, sizeof numbers, 0) != sizeof numbers) return 1;
    unsigned long *start = (unsigned long *)getauxval(AT_RANDOM);
    printf("%lx %lx %lx\n", numbers[0], numbers[1], start[0]);
    return 0;
}
