// Reads a file twice, writes another one, and waits until it is on the disk.
#define _GNU_SOURCE
#include <fcntl.h>
#include <unistd.h>

static char buffer[16384];

int main(void) {
    for (int round = 0; round < 2; round++) {
        int file = open("/data/file", O_RDONLY);
        while (read(file, buffer, sizeof buffer) > 0) {}
        close(file);
    }
    int file = open("/data/out", O_WRONLY | O_CREAT, 0600);
    if (write(file, buffer, 8192) != 8192 || fsync(file)) return 1;
    return 0;
}
