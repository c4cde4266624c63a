/* Cases of `record.rs`: each makes a few calls whose recording is known. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char buffer[4096];

static int file(void)
{
    int fd = open("data", O_RDWR | O_CREAT | O_TRUNC, 0600);
    int right = write(fd, buffer, 100) == 100 && pwrite(fd, buffer, 50, 100) == 50;
    right = right && lseek(fd, 0, SEEK_SET) == 0 && read(fd, buffer, 4096) == 150;
    right = right && pread(fd, buffer, 30, 20) == 30 && read(fd, buffer, 10) == 0 && fsync(fd) == 0;
    return right && close(fd) == 0 ? 0 : 1;
}

static int child(void)
{
    int ends[2], status;
    if (pipe(ends) != 0)
        return 1;
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        _exit(write(ends[1], "x", 1) == 1 ? 0 : 1);
    }
    close(ends[1]);
    if (read(ends[0], buffer, 1) != 1 || waitpid(pid, &status, 0) != pid)
        return 1;
    return status;
}

static void *reads(void *fd)
{
    for (int i = 0; i < 3000; i++)
        if (pread(*(int *)fd, buffer + 1, 1, i) != 1)
            return "short";
    return NULL;
}

static int threads(void)
{
    pthread_t threads[4];
    int fd = open("data", O_RDWR | O_CREAT, 0600), wrong = 0;
    if (ftruncate(fd, 4096) != 0)
        return 1;
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, reads, &fd);
    for (int i = 0; i < 4; i++) {
        void *result;
        pthread_join(threads[i], &result);
        wrong |= result != NULL;
    }
    return wrong;
}

static int killed(void)
{
    int fd = open("data", O_RDWR | O_CREAT, 0600);
    if (write(fd, buffer, 10) == 10)
        kill(getpid(), SIGKILL);
    return 1;
}

static int errors(void)
{
    errno = 0;
    if (read(77, buffer, 1) != -1 || errno != EBADF)
        return printf("read: errno is %d\n", errno), 1;
    errno = 4242;
    int fd = open("data", O_RDWR | O_CREAT, 0600);
    if (write(fd, buffer, 1) != 1 || errno != 4242)
        return printf("write: errno is %d\n", errno), 1;
    if (open("/no/such/file", O_RDONLY) != -1 || errno != ENOENT)
        return printf("open: errno is %d\n", errno), 1;
    return close(fd);
}

int main(int count, char **arguments)
{
    static const struct {
        const char *name;
        int (*run)(void);
    } cases[] = {{"file", file}, {"child", child}, {"threads", threads}, {"killed", killed}, {"errors", errors}};
    for (size_t i = 0; count == 2 && i < sizeof cases / sizeof *cases; i++)
        if (strcmp(arguments[1], cases[i].name) == 0)
            return cases[i].run();
    return 2;
}
