// Files: names, positions, vectors, links, folders, holes, record locks.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define SHOW(call) do { errno = 0; long value = (long)(call); printf("%s = %ld, %s\n", #call, value, errno ? strerror(errno) : "ok"); } while (0)

static int compare(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void list(const char *path) {
    DIR *folder = opendir(path);
    if (!folder) { printf("%s: %s\n", path, strerror(errno)); return; }
    char *names[64];
    int count = 0;
    struct dirent *entry;
    while ((entry = readdir(folder)) && count < 64) {
        char text[300];
        snprintf(text, sizeof text, "%s:%d", entry->d_name, entry->d_type);
        names[count++] = strdup(text);
    }
    closedir(folder);
    qsort(names, count, sizeof *names, compare);
    printf("%s:", path);
    for (int index = 0; index < count; index++) printf(" %s", names[index]);
    printf("\n");
}

int main(int argc, char **argv) {
    if (chdir(argv[1])) { perror("chdir"); return 1; }
    char buffer[100];
    struct stat status;
    int file = open("a", O_RDWR | O_CREAT | O_EXCL, 0640);
    SHOW(file >= 0);
    SHOW(open("a", O_RDWR | O_CREAT | O_EXCL, 0640));
    SHOW(open("missing", O_RDONLY));
    SHOW(open("a/b", O_RDONLY));
    SHOW(write(file, "hello, world", 12));
    SHOW(pwrite(file, "HELLO", 5, 0));
    SHOW(lseek(file, -5, SEEK_END));
    memset(buffer, 0, sizeof buffer);
    SHOW(read(file, buffer, 100));
    printf("%s\n", buffer);
    SHOW(read(file, buffer, 100));
    SHOW(lseek(file, -1, SEEK_SET));
    SHOW(lseek(file, 100, SEEK_SET));
    SHOW(write(file, "x", 1));
    SHOW(fstat(file, &status));
    printf("%ld bytes, mode %o, %lu links\n", (long)status.st_size, status.st_mode, (unsigned long)status.st_nlink);
    memset(buffer, 7, sizeof buffer);
    SHOW(pread(file, buffer, 100, 10));
    printf("%d %d %d\n", buffer[0], buffer[2], buffer[90]);
    struct iovec vectors[3] = {{"one", 3}, {"", 0}, {"twothree", 8}};
    SHOW(lseek(file, 0, SEEK_SET));
    SHOW(writev(file, vectors, 3));
    SHOW(ftruncate(file, 11));
    char first[4] = "", second[20] = "";
    struct iovec parts[2] = {{first, 3}, {second, 19}};
    SHOW(preadv(file, parts, 2, 0));
    printf("%s %s\n", first, second);
    SHOW(fsync(file));
    SHOW(fdatasync(file));
    SHOW(posix_fallocate(file, 0, 5000));
    SHOW(lseek(file, 0, SEEK_END));
    SHOW(lseek(file, 0, SEEK_SET));
    SHOW(read(file, (void *)8, 10));
    SHOW(write(file, (void *)8, 10));
    SHOW(close(file));
    SHOW(close(file));
    SHOW(write(file, "x", 1));
    SHOW(link("a", "b"));
    SHOW(symlink("b", "c"));
    SHOW(readlink("c", buffer, 100));
    SHOW(readlink("a", buffer, 100));
    SHOW(lstat("c", &status));
    printf("link: %o\n", status.st_mode & S_IFMT);
    SHOW(stat("c", &status));
    printf("%lu links\n", (unsigned long)status.st_nlink);
    SHOW(mkdir("d", 0755));
    SHOW(mkdir("d", 0755));
    SHOW(rename("b", "d/e"));
    SHOW(rename("d", "d/f"));
    SHOW(rmdir("d"));
    SHOW(unlink("d"));
    SHOW(access("d/e", R_OK | W_OK));
    SHOW(access("d/e", X_OK));
    SHOW(chmod("d/e", 0755));
    SHOW(access("d/e", X_OK));
    SHOW(access("d/x", F_OK));
    list(".");
    list("d");
    SHOW(chdir("d"));
    char *here = getcwd(buffer, sizeof buffer);
    printf("%s\n", here ? strrchr(here, '/') : "none");
    SHOW(chdir(".."));
    int folder = open("d", O_RDONLY | O_DIRECTORY);
    int inside = openat(folder, "e", O_RDONLY);
    SHOW(inside >= 0);
    SHOW(unlinkat(folder, "e", 0));
    SHOW(pread(inside, buffer, 3, 0));
    SHOW(rmdir("d"));
    SHOW(openat(folder, "g", O_CREAT | O_WRONLY, 0600));
    file = open("a", O_RDWR | O_APPEND);
    SHOW(lseek(file, 0, SEEK_CUR));
    SHOW(write(file, "end", 3));
    SHOW(lseek(file, 0, SEEK_CUR));
    int copy = dup(file);
    SHOW(lseek(copy, 5, SEEK_SET));
    SHOW(lseek(file, 0, SEEK_CUR));
    SHOW(dup2(copy, 50));
    SHOW(fcntl(50, F_GETFL) & (O_ACCMODE | O_APPEND));
    SHOW(fcntl(50, F_GETFD));
    SHOW(fcntl(50, F_SETFD, FD_CLOEXEC));
    SHOW(fcntl(50, F_GETFD));
    struct flock lock = {F_WRLCK, SEEK_SET, 10, 20, 0};
    SHOW(fcntl(file, F_SETLK, &lock));
    lock.l_type = F_RDLCK;
    SHOW(fcntl(file, F_GETLK, &lock));
    printf("%d\n", lock.l_type == F_UNLCK);
    lock = (struct flock){F_WRLCK, SEEK_SET, 100, 20, 0};
    int other = open("a", O_RDWR);
    SHOW(fcntl(other, F_OFD_SETLK, &lock));
    lock.l_pid = 0;
    lock.l_start = 110;
    SHOW(fcntl(file, F_SETLK, &lock));
    SHOW(fcntl(file, F_GETLK, &lock));
    printf("%d %ld %ld %d\n", lock.l_type, (long)lock.l_start, (long)lock.l_len, lock.l_pid);
    SHOW(close(other));
    SHOW(fcntl(file, F_SETLK, &lock));
    SHOW(truncate("a", 3));
    SHOW(lseek(file, 0, SEEK_END));
    int null = open("/dev/null", O_RDWR), zero = open("/dev/zero", O_RDONLY);
    SHOW(write(null, "abc", 3));
    SHOW(read(null, buffer, 3));
    SHOW(read(zero, buffer, 3));
    FILE *stream = fopen("text", "w");
    for (int line = 0; line < 1000; line++) fprintf(stream, "line %d of a text that is longer than a page\n", line);
    fclose(stream);
    stream = fopen("text", "r");
    char line[100];
    long sum = 0;
    int count = 0, number;
    while (fgets(line, sizeof line, stream)) { count++; if (sscanf(line, "line %d", &number) == 1) sum += number; }
    fclose(stream);
    printf("%d lines, sum %ld\n", count, sum);
    SHOW(unlink("text"));
    SHOW(unlink("a"));
    SHOW(unlink("c"));
    list(".");
    return 0;
}
