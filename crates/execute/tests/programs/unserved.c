// Calls that the simulated system does not serve.
#define _GNU_SOURCE
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv) {
    (void)argc;
    if (!strcmp(argv[1], "unknown")) syscall(1234);
    if (!strcmp(argv[1], "known")) mount("a", "b", "c", 0, 0);
    if (!strcmp(argv[1], "fork")) fork();
    if (!strcmp(argv[1], "execve")) execv("/bin/true", argv);
    return 0;
}
