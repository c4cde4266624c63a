/* Calls that go past the usual names: double underscores, numbers, the C library's own functions found by
 * name, closed by stdio, in a table of one thread's own. What a descriptor is, and where it stands, must be
 * right all the same. */
#include "case.h"
#include <dlfcn.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { PAGES = 4, SIZE = PAGES * PAGE };
static unsigned char data[512];

extern ssize_t __read(int, void *, size_t), __write(int, const void *, size_t);
extern ssize_t __pread64(int, void *, size_t, off_t), __pwrite64(int, const void *, size_t, off_t);
extern off_t __lseek(int, off_t, int);
extern int __close(int), __dup2(int, int), __open(const char *, int, ...), __fcntl(int, int, ...);

static void stands_at(int fd, off_t at) {
    EQUAL(kernel_position(fd), at);
    EQUAL(lseek(fd, 0, SEEK_CUR), at);
    EQUAL(read(fd, data, 100), 100);
    DATA(data, 1, at, 100);
    EQUAL(lseek(fd, at, SEEK_SET), at);
}

static void double_underscores(void) {
    int fd = make_hot("f", 1, PAGES);
    EQUAL(lseek(fd, 1000, SEEK_SET), 1000);
    EQUAL(__lseek(fd, 0, SEEK_CUR), 1000);
    EQUAL(__read(fd, data, 64), 64);
    DATA(data, 1, 1000, 64);
    EQUAL(lseek(fd, 0, SEEK_CUR), 1064);
    EQUAL(__pread64(fd, data, 100, 5000), 100);
    DATA(data, 1, 5000, 100);
    EQUAL(__pwrite64(fd, data, 100, 5000), 100);
    fill(data, 1, 1064, 36);
    EQUAL(__write(fd, data, 36), 36);
    EQUAL(lseek(fd, 0, SEEK_CUR), 1100);
    int other = make_hot("g", 2, PAGES);
    EQUAL(__dup2(other, fd), fd);
    EQUAL(pread(fd, data, 100, 7), 100);
    DATA(data, 2, 7, 100);
    EQUAL(__close(fd), 0);
    EQUAL(KERNEL(SYS_open, (long)path("f"), (long)O_RDWR), fd);
    EQUAL(pread(fd, data, 100, 7), 100);
    DATA(data, 1, 7, 100);
}

/* What is found in the C library itself, as ctypes and JNA do, is the same as what is linked. */
static void found_in_the_c_library(void) {
    void *library = dlopen("libc.so.6", RTLD_LAZY);
    CHECK(library);
    ssize_t (*read_)(int, void *, size_t) = (ssize_t(*)(int, void *, size_t))dlsym(library, "read");
    off_t (*lseek_)(int, off_t, int) = (off_t(*)(int, off_t, int))dlsym(library, "lseek");
    int (*close_)(int) = (int (*)(int))dlsym(library, "close");
    CHECK(read_ && lseek_ && close_ && !dlsym(library, "no such function"));
    CHECK(dlsym(RTLD_DEFAULT, "read"));
    int fd = make_hot("f", 1, PAGES);
    for (int i = 0; i < 40; i++) {
        EQUAL(lseek(fd, i * 100, SEEK_SET), i * 100);
        EQUAL(read_(fd, data, 64), 64);
        DATA(data, 1, i * 100, 64);
        EQUAL(lseek_(fd, 0, SEEK_CUR), i * 100 + 64);
        EQUAL(read(fd, data, 36), 36);
        DATA(data, 1, i * 100 + 64, 36);
    }
    make_hot("g", 2, PAGES);
    EQUAL(close_(fd), 0);
    EQUAL(KERNEL(SYS_open, (long)path("g"), (long)O_RDWR), fd);
    EQUAL(pread(fd, data, 100, 7), 100);
    DATA(data, 2, 7, 100);
}

/* dlsym finds what it should: a function of another library is not exchanged, and one asks on whose behalf. */
static void by_python(void) {
    if (system("command -v python3 >/dev/null") != 0)
        skip("needs python3");
    close(make_hot("f", 1, PAGES));
    char *script;
    CHECK(asprintf(&script,
                   "python3 -c \"\n"
                   "import ctypes, os\n"
                   "libc = ctypes.CDLL('libc.so.6', use_errno=True)\n"
                   "fd = os.open('%s', os.O_RDWR)\n"
                   "whole = os.pread(fd, %d, 0)\n"
                   "for i in range(200):\n"
                   "    assert os.pread(fd, 100, i) == whole[i:i + 100]\n"
                   "    os.lseek(fd, i, 0); assert os.read(fd, 60) == whole[i:i + 60]\n"
                   "    buffer = ctypes.create_string_buffer(40)\n"
                   "    assert libc.read(fd, buffer, 40) == 40 and buffer.raw == whole[i + 60:i + 100], i\n"
                   "    assert os.lseek(fd, 0, 1) == i + 100\n"
                   "\"",
                   path("f"), SIZE) > 0);
    EQUAL(system(script), 0);
}

/* Every call by number that moves a position or depends on it. */
static void positions_by_number(void) {
    int fd = make_hot("f", 1, PAGES);
    struct iovec piece = {data, 100};
    EQUAL(lseek(fd, 300, SEEK_SET), 300);
    EQUAL(syscall(SYS_preadv2, fd, &piece, 1L, -1L, 0L, 0), 100);
    DATA(data, 1, 300, 100);
    stands_at(fd, 400);
    fill(data, 1, 400, 100);
    EQUAL(syscall(SYS_pwritev2, fd, &piece, 1L, -1L, 0L, 0), 100);
    stands_at(fd, 500);
    EQUAL(syscall(SYS_readv, fd, &piece, 1L), 100);
    DATA(data, 1, 500, 100);
    EQUAL(syscall(SYS_writev, fd, &(struct iovec){data, 0}, 1L), 0);
    stands_at(fd, 600);
    EQUAL(syscall(SYS_read, fd, data, 100L), 100);
    stands_at(fd, 700);
    EQUAL(syscall(SYS_lseek, fd, 50L, SEEK_CUR), 750);
    int left = -1, same = -1;
    EQUAL(syscall(SYS_ioctl, fd, (long)FIONREAD, &left), 0);
    EQUAL(ioctl(fd, FIONREAD, &same), 0);
    EQUAL(left, SIZE - 750);
    EQUAL(same, left);
    int pair[2];
    EQUAL(syscall(SYS_pipe2, pair, 0L), 0);
    EQUAL(syscall(SYS_sendfile, pair[1], fd, NULL, 100L), 100);
    EQUAL(syscall(SYS_splice, fd, NULL, pair[1], NULL, 100L, 0), 100);
    stands_at(fd, 950);
    int target = open(path("t"), O_RDWR | O_CREAT | O_TRUNC, 0600);
    EQUAL(syscall(SYS_copy_file_range, fd, NULL, target, NULL, 50L, 0), 50);
    stands_at(fd, 1000);
    long copy = syscall(SYS_dup, fd);
    EQUAL(lseek((int)copy, 10, SEEK_CUR), 1010);
    stands_at(fd, 1010);
}

/* Descriptors that reach another process by number, and this one again by its pidfd. */
static void passed_on_by_number(void) {
    int fd = make_hot("f", 1, PAGES), sockets[2];
    EQUAL(lseek(fd, 300, SEEK_SET), 300);
    EQUAL(socketpair(AF_UNIX, SOCK_DGRAM, 0, sockets), 0);
    union {
        char room[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {{0}};
    struct iovec piece = {"x", 1};
    struct mmsghdr message = {
        .msg_hdr = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control}};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message.msg_hdr);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    *(int *)CMSG_DATA(header) = fd;
    EQUAL(syscall(SYS_sendmmsg, sockets[0], &message, 1L, 0L), 1);
    char byte;
    piece.iov_base = &byte;
    message.msg_hdr.msg_controllen = sizeof control;
    EQUAL(syscall(SYS_recvmsg, sockets[1], &message.msg_hdr, 0L), 1);
    int received = *(int *)CMSG_DATA(CMSG_FIRSTHDR(&message.msg_hdr));
    EQUAL(lseek(received, 100, SEEK_CUR), 400);
    stands_at(fd, 400);
    int other = make_hot("g", 1, PAGES);
    EQUAL(lseek(other, 300, SEEK_SET), 300);
    long self_fd = syscall(SYS_pidfd_open, getpid(), 0L);
    if (self_fd < 0)
        skip("needs pidfd_open");
    long again = syscall(SYS_pidfd_getfd, self_fd, other, 0L);
    CHECK(again >= 0);
    EQUAL(lseek((int)again, 100, SEEK_CUR), 400);
    stands_at(other, 400);
}

/* What others see of a position: by the kernel's own account, and by a child that no library noticed. */
static void positions_as_others_see_them(void) {
    int fd = make_hot("f", 1, PAGES);
    for (int i = 0; i < 40; i++)
        EQUAL(read(fd, data, 64), 64);
    char name[64], text[256] = "";
    snprintf(name, sizeof name, "/proc/self/fdinfo/%d", fd);
    long info = KERNEL(SYS_open, (long)name, (long)O_RDONLY);
    CHECK(KERNEL(SYS_read, info, (long)text, (long)sizeof text - 1) > 0);
    EQUAL(atoi(strchr(text, ':') + 1), 40 * 64);
    long pid = KERNEL(SYS_fork);
    if (pid == 0) {
        KERNEL(SYS_read, (long)fd, (long)data, 64L);
        KERNEL(SYS_exit_group, 0L);
    }
    AWAIT((pid_t)pid);
    EQUAL(read(fd, data, 64), 64);
    DATA(data, 1, 41 * 64, 64);
    EQUAL(KERNEL(SYS_read, (long)fd, (long)data, 64L), 64);
    DATA(data, 1, 42 * 64, 64);
    EQUAL(lseek(fd, 0, SEEK_CUR), 43 * 64);
}

/* stdio closes what dup2 put under a stream's number, and opens another file there. */
static void closed_by_stdio(void) {
    int fd = make_hot("f", 1, PAGES);
    FILE *stream = fopen(path("s"), "w+");
    int number = fileno(stream);
    EQUAL(dup2(fd, number), number);
    EQUAL(pread(number, data, 100, 0), 100);
    EQUAL(fclose(stream), 0);
    FILE *next = tmpfile();
    EQUAL(fileno(next), number);
    fputs("other bytes", next);
    fflush(next);
    EQUAL(pread(number, data, 100, 0), 11);
    CHECK(memcmp(data, "other bytes", 11) == 0);
    EQUAL(dup2(fd, number), number);
    CHECK(freopen(path("s"), "w+", next));
    EQUAL(fileno(next), number);
    EQUAL(pread(number, data, 100, 0), 0);
}

static pthread_barrier_t barrier;
static int shared_fd, own_fd;

static void *in_a_table_of_its_own(void *by_number) {
    if (by_number)
        EQUAL(syscall(SYS_unshare, (long)CLONE_FILES), 0);
    else
        EQUAL(unshare(CLONE_FILES), 0);
    EQUAL(close(shared_fd), 0);
    own_fd = open(path("g"), O_RDWR);
    EQUAL(own_fd, shared_fd);
    heat_reads(own_fd, 2, 0, SIZE);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    EQUAL(pread(own_fd, data, 100, 7), 100);
    DATA(data, 2, 7, 100);
    return NULL;
}

static void a_thread_unshares(void *by_number) {
    close(make_hot("g", 2, PAGES));
    shared_fd = make_hot("f", 1, PAGES);
    pthread_t thread;
    EQUAL(pthread_barrier_init(&barrier, NULL, 2), 0);
    EQUAL(pthread_create(&thread, NULL, in_a_table_of_its_own, by_number), 0);
    pthread_barrier_wait(&barrier);
    EQUAL(pread(shared_fd, data, 100, 7), 100);
    DATA(data, 1, 7, 100);
    heat_reads(shared_fd, 1, 0, SIZE);
    pthread_barrier_wait(&barrier);
    EQUAL(pthread_join(thread, NULL), 0);
    EQUAL(pread(shared_fd, data, 100, 7), 100);
    DATA(data, 1, 7, 100);
}

static void unshared_in_a_thread(void) {
    a_thread_unshares(NULL);
}

static void unshared_in_a_thread_by_number(void) {
    a_thread_unshares(data);
}

static void limits_by_number(void) {
    int fd = make_hot("f", 1, 16);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit = {2 * PAGE, RLIM_INFINITY};
    EQUAL(syscall(SYS_prlimit64, 0L, (long)RLIMIT_FSIZE, &limit, NULL), 0);
    FAILS(pwrite(fd, data, 100, 3 * PAGE), EFBIG);
    fill(data, 1, 100, 100);
    EQUAL(pwrite(fd, data, 100, 100), 100);
}

const struct test_case hidden_cases[] = {
    {"hidden/double_underscores", double_underscores, READS},
    {"hidden/found_in_the_c_library", found_in_the_c_library, READS},
    {"hidden/by_python", by_python, READS},
    {"hidden/positions_by_number", positions_by_number, READS | KERNEL_POSITIONS},
    {"hidden/passed_on_by_number", passed_on_by_number, READS | KERNEL_POSITIONS},
    {"hidden/positions_as_others_see_them", positions_as_others_see_them, READS | KERNEL_POSITIONS},
    {"hidden/closed_by_stdio", closed_by_stdio, READS},
    {"hidden/unshared_in_a_thread", unshared_in_a_thread, READS},
    {"hidden/unshared_in_a_thread_by_number", unshared_in_a_thread_by_number, READS},
    {"hidden/limits_by_number", limits_by_number, READS},
    {0},
};
