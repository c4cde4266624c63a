/* Executes a program of the working directory, which PATH leads to, in every way that libc has. Prints the ways that
 * failed; exits with their number. */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
enum { REPLACING = 11, WAYS = 14 };

static void replace(int way, const char *path, const char *name, char **words) {
    switch (way) {
    case 0: execl(path, name, "1", "2", "3", "4", "5", "6", (char *)NULL); break;
    case 1: execlp(name, name, "1", (char *)NULL); break;
    case 2: execle(path, name, "1", "2", "3", "4", "5", "6", "7", (char *)NULL, environ); break;
    case 3: execv(path, words); break;
    case 4: execvp(name, words); break;
    case 5: execve(path, words, environ); break;
    case 6: fexecve(open(path, O_RDONLY | O_CLOEXEC), words, environ); break;
    case 7: execvpe(name, words, environ); break;
    case 8: execveat(AT_FDCWD, path, words, environ, 0); break;
    case 9: syscall(SYS_execve, path, words, environ); break;
    case 10: syscall(SYS_execveat, open(path, O_PATH | O_CLOEXEC), "", words, environ, AT_EMPTY_PATH); break;
    }
    _exit(99);
}

static pid_t start(int way, const char *path, const char *name, char **words) {
    pid_t pid = -1;
    int error = 0;
    if (way == REPLACING)
        error = posix_spawn(&pid, path, NULL, NULL, words, environ);
    else if (way == REPLACING + 1)
        error = posix_spawnp(&pid, name, NULL, NULL, words, environ);
    else if (way == REPLACING + 2)
        error = posix_spawn(NULL, path, NULL, NULL, words, environ);
    else if ((pid = way % 2 ? fork() : vfork()) == 0)
        replace(way, path, name, words);
    if (error != 0)
        printf("way %d: %s\n", way, strerror(error));
    return pid;
}

int main(int count, char **arguments) {
    char path[4096];
    const char *name = arguments[count - 1];
    char *words[] = {(char *)name, "1", "2", "3", "4", "5", "6", NULL};
    int failed = 0;
    snprintf(path, sizeof path, "./%s", name);
    for (int way = 0; way < WAYS; way++) {
        int status = -1;
        fflush(NULL);
        pid_t pid = start(way, path, name, words);
        if (waitpid(pid, &status, 0) < 0 || status != 0) {
            printf("way %d: status %x\n", way, status);
            failed++;
        }
    }
    return failed;
}
