// Calls with arguments that no honest program passes: the numbers of the calls and a seed are the arguments.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static unsigned long state;

static unsigned long number(void) {
    state = state * 6364136223846793005UL + 1442695040888963407UL;
    return state >> 33;
}

int main(int argc, char **argv) {
    (void)argc;
    long call = atol(argv[1]);
    state = strtoul(argv[2], 0, 10);
    int ends[2];
    if (pipe2(ends, O_NONBLOCK)) return 1;
    if (open("/data/file", O_RDWR) < 0 || open("/data", O_RDONLY) < 0) return 2;
    if (epoll_create1(0) < 0 || eventfd(1, EFD_NONBLOCK) < 0) return 3;
    if (socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0) < 0) return 4;
    char *page = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(page + 4096, 4096, PROT_NONE);
    for (int round = 0; round < 60; round++) {
        unsigned long arguments[6];
        for (int index = 0; index < 6; index++) {
            unsigned long some = number();
            unsigned long choices[16] = {
                0, 1, some % 12, some % 4096, -1UL, 1UL << 63, (1UL << 63) - 1, some << 32 | some,
                (unsigned long)page, (unsigned long)page + 4095 - some % 64, (unsigned long)page + 4096, 8,
                (unsigned long)"/data/file", (unsigned long)main, 0x3fffffffff, 1UL << some % 64,
            };
            arguments[index] = choices[number() % 16];
        }
        for (int index = 0; index < 4096 && round % 3 == 0; index += 8) *(unsigned long *)(page + index) = arguments[index / 8 % 6];
        syscall(call, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
    }
    return 0;
}
