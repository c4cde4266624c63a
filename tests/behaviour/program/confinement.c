/* Confinement: programs that give up system calls, address space or their root directory. */
#include "case.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>

enum { SIZE = 8 * PAGE };
static unsigned char data[SIZE];

/* Only read, write, _exit and sigreturn are left: nothing else may be called on the program's behalf. */
static void reads_and_writes_under_strict_seccomp(int fd) {
    int status;
    heat_reads(fd, 1, 0, SIZE);
    heat_writes(fd, 1, 0, SIZE);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        EQUAL(lseek(fd, 300, SEEK_SET), 300);
        EQUAL(read(fd, data, 100), 100);
        EQUAL(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT), 0);
        for (int i = 0; i < 60; i++) {
            EQUAL(read(fd, data, 100), 100);
            DATA(data, 1, 400 + i * 200, 100);
            fill(data, 1, 500 + i * 200, 100);
            EQUAL(write(fd, data, 100), 100);
        }
        KERNEL(SYS_exit, 9L);
    }
    EQUAL(waitpid(pid, &status, 0), pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 9);
    FILE_IS("f", 1, SIZE);
}

static void strict_seccomp(void) {
    reads_and_writes_under_strict_seccomp(make_hot("f", 1, 8));
}

static void strict_seccomp_before_the_position_moved(void) {
    reads_and_writes_under_strict_seccomp(make("f", 1, SIZE));
}

/* From here on the calls that `forbidden` lists kill. */
static void forbid(const int *forbidden, int count, int by_syscall) {
    struct sock_filter filter[32] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    int length = 1;
    for (int i = 0; i < count; i++) {
        filter[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)forbidden[i], 0, 1);
        filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    }
    filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {(unsigned short)length, filter};
    EQUAL(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    if (by_syscall)
        EQUAL(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program), 0);
    else
        EQUAL(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

static void a_filter_that_kills_on_mapping(int by_syscall) {
    static const int calls[] = {SYS_mmap, SYS_munmap, SYS_mremap, SYS_madvise, SYS_mprotect};
    int fd = make_hot("f", 1, 8);
    CHILD({
        forbid(calls, 5, by_syscall);
        heat_reads(fd, 1, 0, SIZE);
        heat_writes(fd, 1, 0, SIZE);
        char *name = path("f");
        for (int i = 0; i < 20; i++) {
            int own = open(name, O_RDWR);
            heat_reads(own, 1, 0, SIZE);
            EQUAL(ftruncate(own, SIZE), 0);
            EQUAL(close(own), 0);
        }
        EQUAL(close(fd), 0);
        _exit(0);
    });
}

static void a_filter_by_prctl(void) {
    a_filter_that_kills_on_mapping(0);
}

static void a_filter_by_seccomp(void) {
    a_filter_that_kills_on_mapping(1);
}

/* A filter that leaves what programs need for file I/O, and nothing that looks into /proc or at memory. */
static void a_narrow_filter(void) {
    static const int calls[] = {SYS_mmap,       SYS_memfd_create, SYS_mincore, SYS_statx,    SYS_newfstatat,
                                SYS_fstat,      SYS_fcntl,        SYS_ioctl,   SYS_openat,   SYS_rt_sigaction,
                                SYS_getpid,     SYS_gettid,       SYS_kcmp,    SYS_sigaltstack};
    int fd = make_hot("f", 1, 8);
    CHILD({
        forbid(calls, sizeof calls / sizeof *calls, 0);
        for (int i = 0; i < 100; i++) {
            off_t at = i * 311L % (SIZE - 100);
            EQUAL(lseek(fd, at, SEEK_SET), at);
            EQUAL(read(fd, data, 100), 100);
            DATA(data, 1, at, 100);
            EQUAL(pwrite(fd, data, 100, at), 100);
            EQUAL(pread(fd, data, 100, SIZE - 10), 10);
        }
        KERNEL(SYS_exit_group, 0L);
    });
}

/* The library's windows must leave the program the address space that it was promised. */
static void little_address_space(void) {
    enum { MIB = 1 << 20 };
    unsigned long pages;
    FILE *statm = fopen("/proc/self/statm", "r");
    EQUAL(fscanf(statm, "%lu", &pages), 1);
    fclose(statm);
    struct rlimit limit = {pages * PAGE + 96UL * MIB, RLIM_INFINITY};
    EQUAL(setrlimit(RLIMIT_AS, &limit), 0);
    int fd = make("f", 1, SIZE);
    EQUAL(ftruncate(fd, 512L * MIB), 0);
    for (off_t at = 0; at < 512L * MIB; at += 16L * MIB) {
        fill(data, 1, at, PAGE);
        EQUAL(pwrite(fd, data, PAGE, at), PAGE);
    }
    for (int round = 0; round < 50; round++)
        for (off_t at = 0; at < 512L * MIB; at += 16L * MIB) {
            EQUAL(pread(fd, data, 300, at + round), 300);
            DATA(data, 1, at + round, 300);
        }
    void *room = mmap(NULL, 80UL * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(room != MAP_FAILED);
    EQUAL(munmap(room, 80UL * MIB), 0);
    char *block = malloc(64UL * MIB);
    CHECK(block != NULL);
    free(block);
    heat_reads(fd, 1, 0, PAGE);
}

static void no_address_space_at_all(void) {
    unsigned long pages;
    FILE *statm = fopen("/proc/self/statm", "r");
    EQUAL(fscanf(statm, "%lu", &pages), 1);
    fclose(statm);
    struct rlimit limit = {pages * PAGE, RLIM_INFINITY};
    EQUAL(setrlimit(RLIMIT_AS, &limit), 0);
    int fd = make_hot("f", 1, 8);
    EQUAL(lseek(fd, 100, SEEK_SET), 100);
    EQUAL(read(fd, data, 100), 100);
    DATA(data, 1, 100, 100);
    FILE_IS("f", 1, SIZE);
}

static void another_root(void) {
    if (geteuid() != 0)
        skip("needs root: chroot");
    int fd = make_hot("f", 1, 8);
    CHILD({
        EQUAL(chroot(path(".")), 0);
        EQUAL(chdir("/"), 0);
        heat_reads(fd, 1, 0, SIZE);
        int own = open("/f", O_RDWR);
        CHECK(own >= 0);
        heat_reads(own, 1, 0, SIZE);
        heat_writes(own, 1, 0, SIZE);
        EQUAL(lseek(own, 100, SEEK_SET), 100);
        EQUAL(read(own, data, 100), 100);
        DATA(data, 1, 100, 100);
        CHILD(heat_reads(own, 1, 0, SIZE));
        EQUAL(open("/absent", O_RDONLY), -1);
    });
}

static void another_user(void) {
    if (geteuid() != 0)
        skip("needs root: setuid");
    int fd = make_hot("f", 1, 8);
    EQUAL(fchmod(fd, 0600), 0);
    CHILD({
        EQUAL(setgid(65534), 0);
        EQUAL(setuid(65534), 0);
        heat_reads(fd, 1, 0, SIZE);
        heat_writes(fd, 1, 0, SIZE);
        FAILS(open(path("f"), O_RDONLY), EACCES);
    });
}

/* A relative name means what it means after the program moved. */
static void another_working_directory(void) {
    EQUAL(mkdir(path("d"), 0700), 0);
    close(make_hot("f", 1, 8));
    close(make_hot("d/f", 2, 8));
    EQUAL(chdir(path(".")), 0);
    int one = open("f", O_RDWR);
    EQUAL(chdir("d"), 0);
    int two = open("f", O_RDWR);
    heat_reads(one, 1, 0, SIZE);
    heat_reads(two, 2, 0, SIZE);
    EQUAL(truncate("f", 100), 0);
    EQUAL(pread(two, data, 200, 50), 50);
    heat_reads(one, 1, 0, SIZE);
}

const struct test_case confinement_cases[] = {
    {"confinement/strict_seccomp", strict_seccomp, READS},
    {"confinement/strict_seccomp_before_the_position_moved", strict_seccomp_before_the_position_moved, READS},
    {"confinement/a_filter_by_prctl", a_filter_by_prctl, READS},
    {"confinement/a_filter_by_seccomp", a_filter_by_seccomp, READS},
    {"confinement/a_narrow_filter", a_narrow_filter, READS},
    {"confinement/little_address_space", little_address_space, ANY},
    {"confinement/no_address_space_at_all", no_address_space_at_all, ANY},
    {"confinement/another_root", another_root, READS},
    {"confinement/another_user", another_user, READS},
    {"confinement/another_working_directory", another_working_directory, READS},
    {0},
};
