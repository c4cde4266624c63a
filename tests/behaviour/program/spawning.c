/* Spawning: other programs started with hot descriptors, and what they inherit. */
#include "case.h"
#include <spawn.h>

extern char **environ;
enum { SIZE = 4 * PAGE };
static unsigned char data[SIZE];
static char number[16];

static int hot_at_500(void) {
    int fd = make_hot("f", 1, 4);
    EQUAL(lseek(fd, 400, SEEK_SET), 400);
    EQUAL(read(fd, data, 100), 100);
    snprintf(number, sizeof number, "%d", fd);
    return fd;
}

/* Each way to exec: the new program reads 100 bytes from where the old one stood. */
static void every_exec_hands_the_position_on(void) {
    int fd = hot_at_500();
    char at[16];
    char *words[] = {(char *)self, "--read-on", number, "1", at, NULL};
    for (int way = 0; way < 8; way++) {
        snprintf(at, sizeof at, "%d", 500 + way * 200);
        fflush(NULL);
        pid_t pid = fork();
        if (pid == 0) {
            if (way == 0)
                execl(self, self, "--read-on", number, "1", at, NULL);
            if (way == 1)
                execlp(self, self, "--read-on", number, "1", at, NULL);
            if (way == 2)
                execle(self, self, "--read-on", number, "1", at, NULL, environ);
            if (way == 3)
                execv(self, words);
            if (way == 4)
                execvp(self, words);
            if (way == 5)
                execve(self, words, environ);
            if (way == 6)
                fexecve(open(self, O_RDONLY | O_CLOEXEC), words, environ);
            if (way == 7)
                syscall(SYS_execve, self, words, environ);
            _exit(1);
        }
        AWAIT(pid);
        EQUAL(read(fd, data, 100), 100);
        DATA(data, 1, 600 + way * 200, 100);
    }
}

/* Without a fork in between: the program that opened the file is the one that is replaced. */
static void exec_in_place_hands_the_position_on(void) {
    hot_at_500();
    execl(self, self, "--read-on", number, "1", "500", NULL);
    fail(__FILE__, __LINE__, "exec failed: errno %d", errno);
}

static void a_failed_exec_changes_nothing(void) {
    int fd = hot_at_500();
    FAILS(execl(path("absent"), "absent", NULL), ENOENT);
    EQUAL(read(fd, data, 100), 100);
    DATA(data, 1, 500, 100);
    heat_reads(fd, 1, 0, SIZE);
    EQUAL(lseek(fd, 0, SEEK_CUR), 600);
}

static void close_on_exec_is_kept(void) {
    int fd = open(path("f"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    fill(data, 1, 0, SIZE);
    EQUAL(write(fd, data, SIZE), SIZE);
    heat_reads(fd, 1, 0, SIZE);
    snprintf(number, sizeof number, "%d", fd);
    CHILD(execl(self, self, "--closed", number, NULL));
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    snprintf(number, sizeof number, "%d", copy);
    CHILD(execl(self, self, "--closed", number, NULL));
    EQUAL(fcntl(fd, F_SETFD, 0), 0);
    EQUAL(lseek(fd, 300, SEEK_SET), 300);
    snprintf(number, sizeof number, "%d", fd);
    CHILD(execl(self, self, "--read-on", number, "1", "300", NULL));
}

static void posix_spawn_hands_the_position_on(void) {
    int fd = hot_at_500();
    char *words[] = {(char *)self, "--read-on", "0", "1", "500", NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fd, 0);
    posix_spawn_file_actions_addclose(&actions, fd);
    pid_t pid;
    EQUAL(posix_spawn(&pid, self, &actions, NULL, words, environ), 0);
    AWAIT(pid);
    EQUAL(read(fd, data, 100), 100);
    DATA(data, 1, 600, 100);
    words[4] = "700";
    EQUAL(posix_spawnp(&pid, self, &actions, NULL, words, environ), 0);
    AWAIT(pid);
    EQUAL(read(fd, data, 100), 100);
    DATA(data, 1, 800, 100);
    heat_reads(fd, 1, 0, SIZE);
}

static void system_hands_the_position_on(void) {
    int fd = hot_at_500();
    char command[256];
    snprintf(command, sizeof command, "dd bs=100 count=1 <&%d >'%s' 2>/dev/null", fd, path("out"));
    EQUAL(system(command), 0);
    int out = open(path("out"), O_RDONLY);
    EQUAL(read(out, data, sizeof data), 100);
    DATA(data, 1, 500, 100);
    EQUAL(read(fd, data, 100), 100);
    DATA(data, 1, 600, 100);
    snprintf(command, sizeof command, "printf hello >&%d", fd);
    EQUAL(system(command), 0);
    EQUAL(lseek(fd, 0, SEEK_CUR), 705);
    EQUAL(pread(fd, data, 5, 700), 5);
    EQUAL(memcmp(data, "hello", 5), 0);
}

static void popen_hands_the_position_on(void) {
    int fd = hot_at_500();
    EQUAL(dup2(fd, 0), 0);
    FILE *stream = popen("dd bs=100 count=1 2>/dev/null", "r");
    CHECK(stream != NULL);
    EQUAL(fread(data, 1, sizeof data, stream), 100);
    DATA(data, 1, 500, 100);
    EQUAL(pclose(stream), 0);
    EQUAL(read(fd, data, 100), 100);
    DATA(data, 1, 600, 100);
    EQUAL(dup2(fd, 1), 1);
    stream = popen("cat", "w");
    EQUAL(fwrite("hello", 1, 5, stream), 5);
    EQUAL(pclose(stream), 0);
    EQUAL(lseek(fd, 0, SEEK_CUR), 705);
}

static void a_shell_script_over_the_file(void) {
    int fd = make_hot("f", 1, 4);
    char command[512];
    char *file = path("f");
    snprintf(command, sizeof command,
             "exec 3<>'%s'; dd bs=10 count=1 <&3 2>/dev/null | cat >'%s'; echo x >>'%s'; head -c 3 <&3 >/dev/null",
             file, path("out"), file);
    EQUAL(system(command), 0);
    EQUAL(lseek(fd, 0, SEEK_END), SIZE + 2);
    EQUAL(pread(fd, data, 100, SIZE), 2);
    EQUAL(memcmp(data, "x\n", 2), 0);
}

/* A binary that was just written through a hot descriptor can be executed once that is closed. */
static void a_binary_just_written_runs(void) {
    int from = open("/bin/true", O_RDONLY), to = open(path("true"), O_RDWR | O_CREAT, 0755);
    for (long got; (got = read(from, data, sizeof data)) > 0;)
        EQUAL(write(to, data, (size_t)got), got);
    for (int i = 0; i < 100; i++) {
        EQUAL(pread(to, data, 512, (i % 4) * 1024), 512);
        EQUAL(pwrite(to, data, 512, (i % 4) * 1024), 512);
    }
    EQUAL(close(to), 0);
    char *words[] = {"true", NULL};
    pid_t pid;
    EQUAL(posix_spawn(&pid, path("true"), NULL, NULL, words, environ), 0);
    AWAIT(pid);
    CHILD({
        execv(path("true"), words);
        fail(__FILE__, __LINE__, "exec failed: errno %d", errno);
    });
}

static void a_daemon_goes_on(void) {
    int fd = hot_at_500(), ends[2];
    EQUAL(pipe(ends), 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        EQUAL(daemon(1, 0), 0);
        EQUAL(read(fd, data, 100), 100);
        DATA(data, 1, 500, 100);
        heat_reads(fd, 1, 0, SIZE);
        heat_writes(fd, 1, 0, SIZE);
        int own = open(path("f"), O_RDWR);
        heat_reads(own, 1, 0, SIZE);
        EQUAL(write(1, data, 10), 10);
        EQUAL(write(ends[1], "done", 4), 4);
        _exit(0);
    }
    AWAIT(pid);
    EQUAL(close(ends[1]), 0);
    EQUAL(read(ends[0], data, 10), 4);
    EQUAL(read(fd, data, 100), 100);
    DATA(data, 1, 600, 100);
}

/* daemon() puts /dev/null over 0 to 2 inside glibc. */
static void a_daemon_whose_input_was_hot(void) {
    int ends[2];
    EQUAL(pipe(ends), 0);
    EQUAL(close(0), 0);
    EQUAL(make_hot("f", 1, 4), 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        EQUAL(daemon(1, 0), 0);
        int result = (int)read(0, data, 100) + (int)pread(0, data, 100, 0);
        if (write(0, data, 100) != 100)
            result = -1;
        EQUAL(write(ends[1], &result, 4), 4);
        _exit(0);
    }
    AWAIT(pid);
    int result = -1;
    EQUAL(read(ends[0], &result, 4), 4);
    EQUAL(result, 0);
    FILE_IS("f", 1, SIZE);
}

static void standard_numbers_closed_at_the_start(void) {
    for (int fd = 0; fd < 3; fd++)
        EQUAL(close(fd), 0);
    CHILD({
        EQUAL(make_hot("a", 1, 2), 0);
        EQUAL(make_hot("b", 2, 2), 1);
        EQUAL(make_hot("c", 3, 2), 2);
        for (int fd = 0; fd < 3; fd++)
            heat_reads(fd, (unsigned)fd + 1, 0, 2 * PAGE);
        execl(self, self, "--read-on", "2", "3", "0", NULL);
    });
    FILE_IS("a", 1, 2 * PAGE);
    FILE_IS("b", 2, 2 * PAGE);
    FILE_IS("c", 3, 2 * PAGE);
}

const struct test_case spawn_cases[] = {
    {"spawning/every_exec_hands_the_position_on", every_exec_hands_the_position_on, READS},
    {"spawning/exec_in_place_hands_the_position_on", exec_in_place_hands_the_position_on, READS},
    {"spawning/a_failed_exec_changes_nothing", a_failed_exec_changes_nothing, READS},
    {"spawning/close_on_exec_is_kept", close_on_exec_is_kept, READS},
    {"spawning/posix_spawn_hands_the_position_on", posix_spawn_hands_the_position_on, READS},
    {"spawning/system_hands_the_position_on", system_hands_the_position_on, READS},
    {"spawning/popen_hands_the_position_on", popen_hands_the_position_on, READS},
    {"spawning/a_shell_script_over_the_file", a_shell_script_over_the_file, READS},
    {"spawning/a_binary_just_written_runs", a_binary_just_written_runs, READS},
    {"spawning/a_daemon_goes_on", a_daemon_goes_on, READS},
    {"spawning/a_daemon_whose_input_was_hot", a_daemon_whose_input_was_hot, ANY},
    {"spawning/standard_numbers_closed_at_the_start", standard_numbers_closed_at_the_start, ANY},
    {0},
};
