// Cases of log.rs: each writes and syncs the file FOLDER/file under the preloaded library, with a log. `snapshot` keeps
// what the kernel has made durable, onto which the test replays the log.
//
//   cases NAME FOLDER
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define SIZE 65536
// Since Linux 6.9.
#ifndef RWF_NOAPPEND
#define RWF_NOAPPEND 0x20
#endif
#define DO(call) ((call) == -1 ? fail(#call, __LINE__) : (void)0)
#define MUST(condition) ((condition) ? (void)0 : fail(#condition, __LINE__))

static char path[4096], other[4096];
static char block[SIZE];

static void fail(const char *what, int line) {
    fprintf(stderr, "line %d: %s: %s\n", line, what, strerror(errno));
    _exit(1);
}

static const char *beside(const char *name) {
    static char text[4096];
    snprintf(text, sizeof text, "%s", path);
    strcpy(strrchr(text, '/') + 1, name);
    return text;
}

static void copy(const char *from_path, const char *name) {
    int from = open(from_path, O_RDONLY), to = open(beside(name), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    MUST(from >= 0 && to >= 0);
    ssize_t length;
    while ((length = read(from, block, sizeof block)) > 0)
        MUST(write(to, block, length) == length);
    close(from);
    close(to);
}

// Keeps the file as it is, which the kernel has just made durable.
static void snapshot(void) {
    copy(path, "base");
}

static void fill(int fd, char byte, off_t offset, size_t length) {
    memset(block, byte, length);
    MUST(pwrite(fd, block, length, offset) == (ssize_t)length);
}

static int begin_with(int flags) {
    int fd = open(path, flags | O_CREAT, 0600);
    MUST(fd >= 0);
    fill(fd, 'a', 0, SIZE);
    DO(fsync(fd));
    snapshot();
    return fd;
}

static int begin(void) {
    return begin_with(O_RDWR);
}

static void overwrite(void) {
    int fd = begin();
    fill(fd, 'b', 100, 5000);
    DO(fdatasync(fd));
    fill(fd, 'c', 3000, 9000);
    DO(fsync(fd));
}

static void grow(void) {
    int fd = begin();
    for (int turn = 0; turn < 20; turn++) {
        fill(fd, 'd' + turn, SIZE + turn * 3000, 3000);
        DO(fdatasync(fd));
    }
}

static void position(void) {
    int fd = begin();
    DO(lseek(fd, 1234, SEEK_SET));
    for (int turn = 0; turn < 5; turn++) {
        memset(block, 'k' + turn, 777);
        MUST(write(fd, block, 777) == 777);
        DO(fdatasync(fd));
    }
    DO(lseek(fd, 0, SEEK_END));
    MUST(write(fd, "end", 3) == 3);
    DO(fdatasync(fd));
}

static void append(void) {
    int fd = begin();
    int end = open(path, O_WRONLY | O_APPEND);
    for (int turn = 0; turn < 10; turn++) {
        memset(block, '0' + turn, 500);
        MUST(turn % 2 ? pwrite(end, block, 500, 0) == 500 : write(end, block, 500) == 500);
        DO(fdatasync(turn % 3 ? end : fd));
    }
    struct stat status;
    DO(fstat(fd, &status));
    MUST(status.st_size == SIZE + 5000);
    // The flag may be set later.
    int late = open(path, O_RDWR);
    MUST(write(late, "x", 1) == 1);
    DO(fcntl(late, F_SETFL, O_APPEND));
    MUST(write(late, "late", 4) == 4);
    DO(fdatasync(late));
    MUST(pwrite(late, "last", 4, 0) == 4);
    DO(fdatasync(fd));
}

static void vectors(void) {
    int fd = begin();
    struct iovec list[200];
    for (int turn = 0; turn < 200; turn++)
        list[turn] = (struct iovec){"0123456789", 10};
    MUST(writev(fd, list, 200) == 2000);
    DO(fdatasync(fd));
    MUST(pwritev(fd, list, 3, 30000) == 30);
    DO(fdatasync(fd));
    MUST(pwritev2(fd, list, 4, 40000, 0) == 40);
    DO(fdatasync(fd));
    MUST(pwritev2(fd, list, 5, -1, 0) == 50);
    DO(fdatasync(fd));
    // Durable by itself.
    MUST(pwritev2(fd, list, 6, 50000, RWF_DSYNC) == 60);
    MUST(pwritev2(fd, list, 7, 60000, RWF_SYNC) == 70);
    MUST(pwritev2(fd, list, 8, -1, RWF_APPEND | RWF_DSYNC) == 80);
    errno = 0;
    struct iovec *volatile nowhere = (struct iovec *)8;
    MUST(writev(fd, nowhere, 3) == -1 && errno == EFAULT);
}

static void write_only(void) {
    begin();
    int fd = open(path, O_WRONLY);
    for (int turn = 0; turn < 5; turn++) {
        fill(fd, 'v' + turn, turn * 4096, 4096);
        DO(fdatasync(fd));
    }
}

// A lock of another file leaves commits by a descriptor that cannot be read to the log; a lock of the file does not, since
// closing the descriptor that the library would read by would unlock it.
static void write_only_locked(void) {
    begin();
    int fd = open(path, O_WRONLY), lock = open(beside("lock"), O_RDWR | O_CREAT, 0600);
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    DO(fcntl(lock, F_SETLK, &whole));
    fill(fd, 'w', 0, 4096);
    DO(fdatasync(fd));
    DO(fcntl(fd, F_SETLK, &whole));
    fill(fd, 'x', 4096, 4096);
    DO(fdatasync(fd));
    pid_t child = fork();
    if (child == 0) {
        struct flock found = whole;
        _exit(fcntl(fd, F_GETLK, &found) == 0 && found.l_type == F_WRLCK ? 0 : 1);
    }
    int status;
    DO(waitpid(child, &status, 0));
    MUST(status == 0);
    snapshot();
}

// A lock of a file that is gone, whose inode number another file has now, leaves commits to the log.
static void write_only_anew(void) {
    struct stat gone, there;
    int fd = -1;
    // The file system gives the number of the last one that was freed, unless others make files meanwhile.
    for (int turn = 0; turn < 100; turn++) {
        int lock = open(path, O_RDWR | O_CREAT, 0600);
        struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        DO(fcntl(lock, F_SETLK, &whole));
        DO(fstat(lock, &gone));
        DO(close(lock));
        DO(unlink(path));
        if (turn > 0)
            close(fd);
        fd = begin();
        DO(fstat(fd, &there));
        if (there.st_ino == gone.st_ino)
            break;
    }
    fd = open(path, O_WRONLY);
    fill(fd, 'n', 0, 4096);
    DO(fdatasync(fd));
}

static void by_number(void) {
    int fd = begin();
    MUST(syscall(SYS_pwrite64, fd, "number", 6, 4000) == 6);
    DO(syscall(SYS_fdatasync, fd));
    MUST(syscall(SYS_write, fd, "position", 8) == 8);
    DO(syscall(SYS_fsync, fd));
    DO(syscall(SYS_unlink, beside("none")) == -1 ? 0 : -1);
}

static void forked(void) {
    int fd = begin();
    fill(fd, 'p', 0, 300);
    if (fork() == 0) {
        fill(fd, 'q', 8192, 300);
        MUST(write(fd, "child", 5) == 5);
        _exit(0);
    }
    MUST(wait(NULL) > 0);
    DO(fdatasync(fd));
    if (fork() == 0) {
        fill(fd, 'r', 20000, 300);
        DO(fdatasync(fd));
        _exit(0);
    }
    int status;
    MUST(wait(&status) > 0 && status == 0);
}

static void borrowed(void) {
    int fd = begin();
    pid_t child = vfork();
    if (child == 0) {
        memset(block, 'w', 300);
        if (pwrite(fd, block, 300, 9000) != 300 || fdatasync(fd) != 0)
            _exit(1);
        _exit(0);
    }
    int status;
    MUST(waitpid(child, &status, 0) > 0 && status == 0);
    fill(fd, 'x', 100, 100);
    DO(fdatasync(fd));
}

static void duplicates(void) {
    int fd = begin();
    int second = dup(fd), third = fcntl(fd, F_DUPFD, 500), fourth = dup2(fd, 600);
    fill(second, '1', 0, 100);
    DO(fdatasync(third));
    fill(fourth, '2', 5000, 100);
    DO(close(fd));
    DO(fdatasync(second));
    // The number becomes another file's.
    int victim = open(beside("victim"), O_RDWR | O_CREAT, 0600);
    DO(dup2(victim, third));
    MUST(pwrite(third, "victim", 6, 0) == 6);
    MUST(write(second, "same", 4) == 4);
    DO(fdatasync(fourth));
}

static void reopened(void) {
    int fd = begin();
    fill(fd, 'n', 7000, 700);
    close(fd);
    fd = open(path, O_RDONLY);
    DO(fdatasync(fd));
}

static void truncated(void) {
    int fd = begin();
    fill(fd, 't', 50000, 5000);
    DO(fdatasync(fd));
    DO(ftruncate(fd, 40000));
    snapshot();
    DO(ftruncate(fd, 60000));
    DO(fdatasync(fd));
    snapshot();
    fill(fd, 'u', 30000, 100);
    DO(fdatasync(fd));
}

static void truncated_by_name(void) {
    int fd = begin();
    fill(fd, 't', 50000, 5000);
    DO(fdatasync(fd));
    DO(truncate(path, 40000));
    snapshot();
}

static void opened_anew(void) {
    int fd = begin();
    fill(fd, 't', 50000, 5000);
    DO(fdatasync(fd));
    close(fd);
    fd = open(path, O_RDWR | O_TRUNC);
    fill(fd, 'z', 0, 100);
    snapshot();
}

static void stream_anew(void) {
    int fd = begin();
    fill(fd, 't', 50000, 5000);
    DO(fdatasync(fd));
    FILE *stream = fopen(path, "w");
    fputs("stream", stream);
    fflush(stream);
    DO(fsync(fileno(stream)));
    snapshot();
    fputs("more", stream);
    fflush(stream);
    DO(fsync(fd));
    snapshot();
}

static void punched(void) {
    int fd = begin();
    fill(fd, 't', 8192, 5000);
    DO(fdatasync(fd));
    DO(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 8192, 4096));
    snapshot();
    DO(fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 0, 4096));
    DO(fdatasync(fd));
    snapshot();
    fill(fd, 'p', 0, 10);
    DO(fdatasync(fd));
}

static void renamed(void) {
    int fd = begin();
    fill(fd, 'r', 100, 100);
    DO(fdatasync(fd));
    char to[4096];
    strcpy(to, beside("file2"));
    DO(rename(path, to));
    strcpy(path, to);
    snapshot();
    fill(fd, 's', 200, 100);
    DO(fdatasync(fd));
    snapshot();
    fill(fd, 't', 300, 100);
    DO(fdatasync(fd));
}

static void folder_renamed(void) {
    char folder[4096], to[4096];
    strcpy(folder, beside("folder"));
    strcpy(to, beside("folder2"));
    DO(mkdir(folder, 0700));
    strcpy(path, beside("folder/file"));
    int fd = begin();
    fill(fd, 'r', 100, 100);
    DO(fdatasync(fd));
    DO(rename(folder, to));
    strcpy(path, to);
    strcat(path, "/file");
    copy(path, "../base");
    fill(fd, 's', 200, 100);
    DO(fdatasync(fd));
    copy(path, "../base");
    fill(fd, 't', 300, 100);
    DO(fdatasync(fd));
}

static void replaced(void) {
    int fd = begin();
    fill(fd, 'r', 100, 100);
    DO(fdatasync(fd));
    int next = open(beside("next"), O_RDWR | O_CREAT, 0600);
    fill(next, 'n', 0, 1000);
    DO(fsync(next));
    fill(next, 'm', 0, 100);
    DO(fsync(next));
    DO(rename(beside("next"), path));
    // The file that was replaced has no name, but can be written and synced.
    fill(fd, 'x', 0, 10);
    DO(fsync(fd));
    DO(fsync(next));
    snapshot();
    fill(next, 'o', 500, 100);
    DO(fsync(next));
}

static void unlinked(void) {
    int fd = begin();
    fill(fd, 'r', 100, 100);
    DO(fdatasync(fd));
    DO(unlink(path));
    fill(fd, 's', 100, 100);
    DO(fdatasync(fd));
    DO(fdatasync(fd));
    // Another file of the same name.
    int next = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    fill(next, 'n', 0, 1000);
    DO(fsync(next));
    snapshot();
    fill(next, 'm', 0, 10);
    DO(fsync(next));
}

static void linked(void) {
    int fd = begin();
    fill(fd, 'r', 100, 100);
    DO(fdatasync(fd));
    DO(link(path, beside("second")));
    DO(fdatasync(fd));
    snapshot();
    DO(unlink(path));
    strcpy(path, beside("second"));
    // The name that the descriptor was opened by is gone.
    DO(fdatasync(fd));
    fill(fd, 's', 400, 100);
    DO(fdatasync(fd));
    int second = open(path, O_RDONLY);
    DO(fdatasync(second));
    snapshot();
    fill(fd, 's', 300, 100);
    DO(fdatasync(fd));
}

static void attributes(void) {
    int fd = begin();
    fill(fd, 'r', 100, 100);
    DO(fdatasync(fd));
    DO(fchmod(fd, 0640));
    DO(fsync(fd));
    DO(chmod(path, 0600));
    DO(fsync(fd));
    DO(setxattr(path, "user.x", "y", 1, 0));
    DO(fsync(fd));
    snapshot();
    // What is so already.
    DO(fchown(fd, getuid(), getgid()));
    DO(chmod(path, 0600));
    fill(fd, 's', 300, 100);
    DO(fsync(fd));
}

static void mapped(void) {
    int fd = begin();
    fill(fd, 'r', 100, 100);
    DO(fdatasync(fd));
    char *at = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    MUST(at != MAP_FAILED);
    close(fd);
    memset(at, 'm', 200);
    fd = open(path, O_RDWR);
    DO(fdatasync(fd));
    memset(at + 300, 'n', 200);
    DO(fdatasync(fd));
    DO(msync(at, SIZE, MS_SYNC));
    snapshot();
}

static void mapped_first(void) {
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    fill(fd, 'a', 0, SIZE);
    char *at = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, 0);
    MUST(at != MAP_FAILED);
    DO(mprotect(at, SIZE, PROT_READ | PROT_WRITE));
    for (int turn = 0; turn < 3; turn++) {
        memset(at + turn * 100, 'b' + turn, 100);
        DO(fsync(fd));
    }
    snapshot();
}

// A mapping that the kernel refuses changes nothing.
static void mapped_in_vain(void) {
    int fd = begin();
    for (int turn = 0; turn < 2; turn++) {
        char *at = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
        MUST(at == MAP_FAILED && errno == EOPNOTSUPP);
        fill(fd, 'b' + turn, turn * 100, 100);
        DO(fdatasync(fd));
    }
}

static void streams(void) {
    FILE *stream = fopen(path, "w+");
    int second = open(path, O_RDWR);
    for (int turn = 0; turn < 3; turn++) {
        fprintf(stream, "turn %d\n", turn);
        fflush(stream);
        DO(fsync(turn % 2 ? second : fileno(stream)));
    }
    snapshot();
}

static void streams_beside(void) {
    FILE *stream = fopen(path, "w+");
    int second = open(path, O_RDWR);
    for (int turn = 0; turn < 3; turn++) {
        fprintf(stream, "turn %d\n", turn);
        fflush(stream);
        DO(fsync(second));
    }
    snapshot();
}

static void streams_later(void) {
    int fd = begin();
    fill(fd, 'r', 100, 100);
    DO(fdatasync(fd));
    FILE *stream = fdopen(dup(fd), "r+");
    fputs("by a stream", stream);
    fflush(stream);
    DO(fdatasync(fd));
    fputs(", again", stream);
    fflush(stream);
    DO(fdatasync(fd));
    dprintf(fd, "dprintf");
    DO(fdatasync(fd));
    snapshot();
}

static void transfers(void) {
    int fd = begin();
    fill(fd, 'r', 100, 100);
    DO(fdatasync(fd));
    int from = open(beside("base"), O_RDONLY);
    MUST(sendfile(fd, from, NULL, 1000) == 1000);
    DO(fdatasync(fd));
    snapshot();
    off_t in = 0, out = 5000;
    MUST(copy_file_range(from, &in, fd, &out, 1000, 0) == 1000);
    DO(fdatasync(fd));
    snapshot();
    int pair[2];
    DO(pipe(pair));
    MUST(write(pair[1], "spliced", 7) == 7);
    out = 9000;
    MUST(splice(pair[0], NULL, fd, &out, 7, 0) == 7);
    DO(fdatasync(fd));
    snapshot();
    fill(fd, 's', 100, 100);
    DO(fdatasync(fd));
}

static void unserved(void) {
    int fd = begin();
    fill(fd, 'r', 100, 100);
    DO(fdatasync(fd));
    unsetenv("LD_PRELOAD");
    char command[64];
    snprintf(command, sizeof command, "printf shell >&%d", fd);
    DO(lseek(fd, 120, SEEK_SET));
    MUST(system(command) == 0);
    snapshot();
    DO(fdatasync(fd));
    snapshot();
}

static void executed(void) {
    int fd = begin();
    fill(fd, 'r', 100, 100);
    DO(fdatasync(fd));
    DO(lseek(fd, 120, SEEK_SET));
    if (fork() == 0) {
        char command[64];
        snprintf(command, sizeof command, "printf executed >&%d", fd);
        char *const arguments[] = {"sh", "-c", command, NULL}, *const environment[] = {NULL};
        execve("/bin/sh", arguments, environment);
        _exit(1);
    }
    int status;
    MUST(wait(&status) > 0 && status == 0);
    snapshot();
}

static void ring(void) {
    int fd = begin();
    fill(fd, 'r', 100, 100);
    DO(fdatasync(fd));
    char parameters[512] = {0};
    if (syscall(SYS_io_uring_setup, 4, parameters) < 0 && errno != ENOSYS && errno != EPERM)
        fail("io_uring_setup", __LINE__);
    snapshot();
    int later = open(path, O_RDWR);
    fill(later, 's', 100, 50);
    DO(fdatasync(later));
    snapshot();
}

static void passed_on(void) {
    int fd = begin();
    fill(fd, 'r', 100, 100);
    DO(fdatasync(fd));
    int pair[2];
    DO(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    char room[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec piece = {"x", 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(part), &fd, sizeof fd);
    MUST(sendmsg(pair[0], &message, 0) == 1);
    snapshot();
}

static void asynchronous(void) {
    int fd = begin();
    fill(fd, 'r', 100, 100);
    DO(fdatasync(fd));
    struct aiocb request = {.aio_fildes = fd, .aio_buf = "aio", .aio_nbytes = 3, .aio_offset = 120};
    DO(aio_write(&request));
    const struct aiocb *list[] = {&request};
    while (aio_error(&request) == EINPROGRESS)
        aio_suspend(list, 1, NULL);
    MUST(aio_return(&request) == 3);
    DO(fdatasync(fd));
    snapshot();
}

static void all_files(void) {
    int fd = begin();
    fill(fd, 'r', 100, 100);
    DO(fdatasync(fd));
    fill(fd, 's', 120, 100);
    DO(syncfs(fd));
    snapshot();
    fill(fd, 't', 100, 100);
    DO(fdatasync(fd));
    fill(fd, 'u', 120, 100);
    sync();
    snapshot();
    fill(fd, 'v', 1000, 100);
    DO(fdatasync(fd));
}

static void all_by_sync(void) {
    int fd = begin();
    fill(fd, 'r', 100, 100);
    DO(fdatasync(fd));
    fill(fd, 's', 120, 100);
    sync();
    snapshot();
}

static void all_of_a_disk(void) {
    int fd = begin();
    fill(fd, 'r', 100, 100);
    DO(fdatasync(fd));
    fill(fd, 's', 120, 100);
    DO(syncfs(fd));
    snapshot();
}

static void direct(void) {
    int fd = begin();
    fill(fd, 'r', 100, 100);
    DO(fdatasync(fd));
    int plain = open(path, O_RDWR | O_DIRECT);
    MUST(plain >= 0);
    char *at = aligned_alloc(4096, 4096);
    memset(at, 'd', 4096);
    MUST(pwrite(plain, at, 4096, 4096) == 4096);
    DO(fdatasync(fd));
    memset(at, 'e', 4096);
    MUST(pwrite(plain, at, 4096, 8192) == 4096);
    DO(fdatasync(plain));
    snapshot();
    fill(fd, 's', 100, 100);
    DO(fdatasync(fd));
}

// Closes what it never opened, and gets the numbers for files of its own.
static void closing(void) {
    int fd = begin();
    fill(fd, 'r', 100, 100);
    DO(fdatasync(fd));
    char text[32], target[4096];
    int own = -1;
    for (int number = 3; number < 1024; number++) {
        snprintf(text, sizeof text, "/proc/self/fd/%d", number);
        ssize_t length = readlink(text, target, sizeof target - 1);
        if (length > 4 && memcmp(target + length - 4, "/log", 4) == 0)
            own = number;
    }
    MUST(own > 0);
    errno = 0;
    MUST(close(own) == -1 && errno == EBADF);
    int victim = open(beside("victim"), O_RDWR | O_CREAT, 0600);
    DO(dup2(victim, own));
    fill(fd, 's', 200, 100);
    DO(fdatasync(fd));
    int kept = dup2(fd, 5), kept_victim = dup2(victim, 6);
    closefrom(7);
    for (int number = 7; number < 1000; number++)
        DO(dup2(kept_victim, number));
    fill(kept, 't', 300, 100);
    DO(fdatasync(kept));
    DO(close_range(7, ~0U, 0));
    for (int number = 7; number < 1000; number++)
        DO(dup2(kept_victim, number));
    fill(kept, 'u', 400, 100);
    DO(fdatasync(kept));
    // Closed without a word to the library.
    for (int number = 7; number < 1024; number++)
        __asm__ volatile("syscall" : : "a"(3), "D"(number) : "rcx", "r11", "memory");
    for (int number = 7; number < 1000; number++)
        DO(dup2(kept_victim, number));
    fill(kept, 'v', 500, 100);
    DO(fdatasync(kept));
    struct stat status;
    DO(fstat(kept_victim, &status));
    MUST(status.st_size == 0);
}

static int handled;

static void handler(int signal) {
    (void)signal;
    int kept = errno;
    char bytes[16];
    memset(bytes, 'h', sizeof bytes);
    MUST(pwrite(handled, bytes, sizeof bytes, 60000) == sizeof bytes);
    DO(fdatasync(handled));
    errno = kept;
}

static void signals(void) {
    handled = begin();
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    DO(sigaction(SIGALRM, &action, NULL));
    struct itimerval often = {{0, 300}, {0, 300}};
    DO(setitimer(ITIMER_REAL, &often, NULL));
    char bytes[2000];
    for (int turn = 0; turn < 500; turn++) {
        memset(bytes, 'A' + turn % 26, sizeof bytes);
        MUST(pwrite(handled, bytes, sizeof bytes, turn % 20 * 1000) == sizeof bytes);
        DO(fdatasync(handled));
    }
    struct itimerval never = {{0, 0}, {0, 0}};
    DO(setitimer(ITIMER_REAL, &never, NULL));
}

static void *worker(void *argument) {
    long number = (long)argument;
    char bytes[512];
    for (int turn = 0; turn < 100; turn++) {
        memset(bytes, 'a' + (turn + number) % 26, sizeof bytes);
        MUST(pwrite(handled, bytes, sizeof bytes, (number * 100 + turn) * 512) == sizeof bytes);
        DO(fdatasync(handled));
    }
    return NULL;
}

static void threads(void) {
    handled = begin();
    pthread_t list[4];
    for (long number = 0; number < 4; number++)
        MUST(pthread_create(&list[number], NULL, worker, (void *)number) == 0);
    for (int number = 0; number < 4; number++)
        MUST(pthread_join(list[number], NULL) == 0);
}

static void *endless(void *argument) {
    (void)argument;
    char bytes[512];
    memset(bytes, 'e', sizeof bytes);
    for (;;) {
        MUST(pwrite(handled, bytes, sizeof bytes, 10000) == sizeof bytes);
        DO(fdatasync(handled));
    }
    return NULL;
}

static void cancelled(void) {
    handled = begin();
    for (int turn = 0; turn < 20; turn++) {
        pthread_t thread;
        MUST(pthread_create(&thread, NULL, endless, NULL) == 0);
        usleep(2000);
        MUST(pthread_cancel(thread) == 0);
        void *result;
        MUST(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
        fill(handled, 'm', turn * 100, 100);
        DO(fdatasync(handled));
    }
}

// Writes here and there while another thread commits; each place is written once.
static int ended, committed;

static void *committer(void *argument) {
    while (__atomic_load_n(&ended, __ATOMIC_SEQ_CST) == 0) {
        DO(fdatasync(handled));
        __atomic_fetch_add(&committed, 1, __ATOMIC_SEQ_CST);
    }
    return argument;
}

static void raced(void) {
    handled = begin();
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, committer, NULL) == 0);
    for (int turn = 0; turn < 4000; turn++) {
        fill(handled, 'A' + turn % 50, SIZE + turn * 512, 512);
        if (turn % 8 == 0)
            usleep(20);
        // No commit is larger than a batch, whatever the disk is busy with.
        int before = __atomic_load_n(&committed, __ATOMIC_SEQ_CST);
        while (turn % 256 == 0 && __atomic_load_n(&committed, __ATOMIC_SEQ_CST) < before + 2)
            usleep(100);
    }
    __atomic_store_n(&ended, 1, __ATOMIC_SEQ_CST);
    MUST(pthread_join(thread, NULL) == 0);
    DO(fdatasync(handled));
}

static void synchronous(void) {
    int fd = begin();
    fill(fd, 'r', 100, 100);
    DO(fdatasync(fd));
    int durable = open(path, O_RDWR | O_DSYNC), more = open(path, O_RDWR | O_SYNC);
    fill(durable, 's', 120, 100);
    fill(more, 't', 140, 5000);
    fill(durable, 'u', SIZE - 50, 100);
    MUST(pwrite(durable, "none", 0, 0) == 0);
    fill(fd, 'v', 160, 100);
    DO(fdatasync(fd));
}

// A file that is never synced by a call joins at its first durable write.
static void synchronous_first(void) {
    int fd = open(path, O_RDWR | O_CREAT | O_DSYNC, 0600);
    fill(fd, 'a', 0, SIZE);
    snapshot();
    fill(fd, 'b', 100, 100);
    fill(fd, 'c', SIZE, 1000);
}

static void synchronous_flags(void) {
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    struct iovec list[2] = {{"0123456789", 10}, {"abcdef", 6}};
    MUST(pwritev2(fd, list, 2, 0, RWF_DSYNC) == 16);
    snapshot();
    MUST(pwritev2(fd, list, 2, 8, RWF_SYNC) == 16);
    // By a descriptor that is synchronous itself.
    int durable = open(path, O_RDWR | O_DSYNC);
    MUST(pwritev2(durable, list, 2, 30, RWF_SYNC) == 16);
    MUST(pwritev2(durable, list, 1, -1, RWF_DSYNC) == 10 && lseek(durable, 0, SEEK_CUR) == 10);
    MUST(pwritev2(durable, list, 1, -1, RWF_APPEND) == 10 && lseek(durable, 0, SEEK_CUR) == 56);
    MUST(pwritev2(durable, list, 1, 3, RWF_APPEND) == 10 && lseek(durable, 0, SEEK_CUR) == 56);
    DO(fcntl(durable, F_SETFL, O_APPEND));
    ssize_t written = pwritev2(durable, list, 2, 4, RWF_NOAPPEND);
    if (written == -1 && errno == EOPNOTSUPP)
        written = pwritev2(durable, list, 2, 4, 0);
    MUST(written == 16);
}

// Whatever moves the position, it is where it would be without the library.
static void synchronous_position(void) {
    begin();
    int fd = open(path, O_RDWR | O_DSYNC), second = dup(fd);
    struct iovec list[2] = {{"first", 5}, {"second", 6}};
    MUST(write(fd, "12345", 5) == 5 && lseek(second, 0, SEEK_CUR) == 5);
    MUST(writev(second, list, 2) == 11 && lseek(fd, 0, SEEK_CUR) == 16);
    MUST(read(fd, block, 84) == 84 && write(second, "six", 3) == 3 && lseek(fd, 0, SEEK_CUR) == 103);
    MUST(pwrite(fd, "elsewhere", 9, 4000) == 9 && lseek(fd, 0, SEEK_CUR) == 103);
    MUST(pwritev(fd, list, 2, 5000) == 11 && lseek(fd, 0, SEEK_CUR) == 103);
    MUST(lseek(fd, 1000, SEEK_CUR) == 1103 && write(fd, "seven", 5) == 5);
    MUST(preadv2(fd, list, 0, -1, 0) == 0);
    int status;
    if (fork() == 0) {
        MUST(lseek(fd, 0, SEEK_CUR) == 1108 && write(second, "child", 5) == 5);
        _exit(0);
    }
    MUST(wait(&status) > 0 && status == 0 && lseek(fd, 0, SEEK_CUR) == 1113);
    if (fork() == 0) {
        char number[16];
        snprintf(number, sizeof number, "%d", fd);
        setenv("DESCRIPTOR", number, 1);
        execl(other, other, "inheritor", path, (char *)NULL);
        _exit(1);
    }
    MUST(wait(&status) > 0 && status == 0 && lseek(fd, 0, SEEK_CUR) == 1122);
    // Nothing is read from the arguments of a call that fails.
    errno = 0;
    struct iovec *volatile nowhere = (struct iovec *)8;
    MUST(writev(fd, nowhere, 3) == -1 && errno == EFAULT && lseek(fd, 0, SEEK_CUR) == 1122);
    MUST(write(fd, nowhere, 3) == -1 && errno == EFAULT && lseek(fd, 0, SEEK_CUR) == 1122);
    MUST(pwrite(fd, "x", 1, -1) == -1 && errno == EINVAL);
    MUST(pwritev(fd, list, 2, -1) == -1 && errno == EINVAL);
    MUST(pwritev2(fd, list, 2, 0, 1 << 30) == -1 && errno == EOPNOTSUPP);
}

static void inheritor(void) {
    int fd = atoi(getenv("DESCRIPTOR"));
    MUST(write(fd, "inherited", 9) == 9);
}

static void synchronous_append(void) {
    begin();
    int fd = open(path, O_WRONLY | O_DSYNC | O_APPEND), second = dup(fd);
    MUST(write(fd, "appended", 8) == 8 && lseek(fd, 0, SEEK_CUR) == SIZE + 8);
    MUST(pwrite(fd, "also", 4, 0) == 4 && lseek(fd, 0, SEEK_CUR) == SIZE + 8);
    MUST(write(second, "by the other", 12) == 12 && lseek(fd, 0, SEEK_CUR) == SIZE + 24);
    // The flag belongs to the description, whichever descriptor it is changed by.
    DO(fcntl(second, F_SETFL, 0));
    MUST(pwrite(fd, "at", 2, 100) == 2 && write(fd, "here", 4) == 4);
    MUST(lseek(fd, 0, SEEK_CUR) == SIZE + 28);
    pid_t child = fork();
    if (child == 0) {
        DO(fcntl(fd, F_SETFL, O_APPEND));
        _exit(0);
    }
    DO(waitpid(child, NULL, 0));
    MUST(pwrite(fd, "end", 3, 200) == 3);
    struct stat status;
    DO(fstat(fd, &status));
    MUST(status.st_size == SIZE + 31);
}

// Every write is durable by itself by whatever descriptor (chattr +S): never the log's.
static void synchronous_attribute(void) {
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    unsigned long flags = 0;
    DO(ioctl(fd, FS_IOC_GETFLAGS, &flags));
    flags |= FS_SYNC_FL;
    DO(ioctl(fd, FS_IOC_SETFLAGS, &flags));
    for (int turn = 0; turn < 4; turn++) {
        fill(fd, 'a' + turn, turn * 100, 200);
        DO(fsync(fd));
    }
    snapshot();
}

// A file that was made a moment ago joins at the third sync by one descriptor.
static void young(void) {
    int fd = open(path, O_RDWR | O_CREAT, 0600), second = open(path, O_RDWR);
    for (int turn = 0; turn < 2; turn++) {
        fill(fd, 'a' + turn, turn * 100, 200);
        DO(fsync(fd));
        DO(fdatasync(second));
    }
    fill(fd, 'c', 300, 200);
    DO(fsync(fd));
    snapshot();
    fill(fd, 'd', 400, 200);
    DO(fsync(second));
}

static void young_durable(void) {
    int fd = open(path, O_RDWR | O_CREAT | O_DSYNC, 0600);
    for (int turn = 0; turn < 3; turn++)
        fill(fd, 'a' + turn, turn * 100, 200);
    snapshot();
    fill(fd, 'd', 400, 200);
}

static void aged(void) {
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    usleep(1100000);
    fill(fd, 'a', 0, 200);
    DO(fsync(fd));
    snapshot();
    fill(fd, 'b', 100, 200);
    DO(fsync(fd));
}

static volatile sig_atomic_t limited;

static void on_limit(int signal) {
    (void)signal;
    limited++;
}

// Writes that fail or are cut short. The log is smaller than the limit, so writes are the log's all the same.
static void synchronous_limits(void) {
    const off_t limit = 100 << 20;
    int fd = begin();
    DO(ftruncate(fd, limit - 10));
    DO(fsync(fd));
    snapshot();
    int durable = open(path, O_WRONLY | O_DSYNC);
    DO(lseek(durable, limit - 10, SEEK_SET));
    struct rlimit size = {limit, limit};
    DO(setrlimit(RLIMIT_FSIZE, &size));
    signal(SIGXFSZ, on_limit);
    MUST(write(durable, "0123456789abcdef", 16) == 10 && lseek(durable, 0, SEEK_CUR) == limit && limited == 0);
    errno = 0;
    MUST(write(durable, "more", 4) == -1 && errno == EFBIG && lseek(durable, 0, SEEK_CUR) == limit && limited == 1);
    MUST(pwrite(durable, "more", 4, limit) == -1 && errno == EFBIG && limited == 2);
    MUST(pwrite(durable, "back", 4, 0) == 4);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGXFSZ, SIG_DFL);
        (void)!write(durable, "dead", 4);
        _exit(0);
    }
    int status;
    DO(waitpid(child, &status, 0));
    MUST(WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ);
}

// A process that cannot write the log's file by its limit leaves files to the kernel.
static void synchronous_small_limit(void) {
    begin();
    int fd = open(path, O_RDWR | O_DSYNC);
    struct rlimit size = {1 << 20, RLIM_INFINITY};
    DO(setrlimit(RLIMIT_FSIZE, &size));
    fill(fd, 's', 100, 100);
    MUST(write(fd, "here", 4) == 4 && lseek(fd, 0, SEEK_CUR) == 4);
    snapshot();
}

// The second open file cannot be had: too many descriptors, or not the right to open the file any more.
static void synchronous_alone(void) {
    int fd = begin();
    fill(fd, 'r', 100, 100);
    DO(fdatasync(fd));
    int durable = open(path, O_WRONLY | O_DSYNC);
    struct rlimit before, few;
    DO(getrlimit(RLIMIT_NOFILE, &before));
    few = before;
    few.rlim_cur = durable + 1;
    DO(setrlimit(RLIMIT_NOFILE, &few));
    fill(durable, 's', 120, 100);
    MUST(write(durable, "here", 4) == 4 && lseek(durable, 0, SEEK_CUR) == 4);
    DO(setrlimit(RLIMIT_NOFILE, &before));
    snapshot();
    fill(fd, 't', 140, 100);
    DO(fdatasync(fd));
    snapshot();
}

static void synchronous_denied(void) {
    int fd = begin();
    fill(fd, 'r', 100, 100);
    DO(fdatasync(fd));
    int durable = open(path, O_WRONLY | O_DSYNC);
    // Root may open any file; without root the file's owner loses the right.
    DO(chmod(path, 0));
    DO(fsync(fd));
    if (geteuid() == 0)
        DO(seteuid(65534));
    fill(durable, 's', 120, 100);
    if (getuid() == 0)
        DO(seteuid(0));
    DO(chmod(path, 0600));
    snapshot();
}

static void synchronous_direct(void) {
    int fd = begin();
    fill(fd, 'r', 4000, 200);
    DO(fdatasync(fd));
    int direct = open(path, O_RDWR | O_DIRECT | O_DSYNC);
    MUST(direct >= 0);
    char *at = aligned_alloc(4096, 4096);
    memset(at, 'd', 4096);
    MUST(pwrite(direct, at, 4096, 4096) == 4096);
    snapshot();
    // The flag may come later, and by another descriptor.
    int late = open(path, O_RDWR | O_DSYNC), same = dup(late);
    DO(fcntl(same, F_SETFL, O_DIRECT));
    memset(at, 'e', 4096);
    MUST(write(late, at, 4096) == 4096);
    errno = 0;
    MUST(write(late, at + 1, 100) == -1 && errno == EINVAL);
    snapshot();
}

// As above, but the file is the log's when the flag comes.
static void synchronous_direct_later(void) {
    begin();
    int fd = open(path, O_RDWR | O_DSYNC);
    fill(fd, 'r', 4000, 200);
    fill(fd, 's', 4100, 200);
    pid_t child = fork();
    if (child == 0) {
        DO(fcntl(fd, F_SETFL, O_DIRECT));
        _exit(0);
    }
    DO(waitpid(child, NULL, 0));
    char *at = aligned_alloc(4096, 8192);
    memset(at, 'e', 4096);
    errno = 0;
    MUST(pwrite(fd, at + 1, 100, 1) == -1 && errno == EINVAL);
    MUST(pwrite(fd, at, 4096, 4096) == 4096);
    snapshot();
}

// Returns the library's second descriptor of the file: the only one with a high number.
static int second_descriptor(void) {
    char text[32], target[4096];
    for (int number = 900; number < 1024; number++) {
        snprintf(text, sizeof text, "/proc/self/fd/%d", number);
        ssize_t length = readlink(text, target, sizeof target - 1);
        if (length == (ssize_t)strlen(path) && memcmp(target, path, length) == 0)
            return number;
    }
    return -1;
}

// Closes what it never opened, and gets the numbers for files of its own.
static void synchronous_closing(void) {
    begin();
    int fd = open(path, O_RDWR | O_DSYNC);
    int victim = open(beside("victim"), O_RDWR | O_CREAT, 0600);
    fill(fd, 's', 100, 100);
    int second = second_descriptor();
    MUST(second > 0);
    errno = 0;
    MUST(close(second) == -1 && errno == EBADF);
    DO(dup2(victim, second));
    fill(fd, 't', 200, 100);
    int third = second_descriptor();
    MUST(third > 0 && third != second);
    // Closed without a word to the library.
    __asm__ volatile("syscall" : : "a"(3), "D"(third) : "rcx", "r11", "memory");
    MUST(fcntl(victim, F_DUPFD, third) == third);
    fill(fd, 'u', 300, 100);
    // Of the same file, but not for writing.
    int fourth = second_descriptor();
    MUST(fourth > 0);
    __asm__ volatile("syscall" : : "a"(3), "D"(fourth) : "rcx", "r11", "memory");
    int reader = open(path, O_RDONLY);
    MUST(fcntl(reader, F_DUPFD, fourth) == fourth);
    fill(fd, 'v', 400, 100);
    DO(dup2(fd, 5));
    closefrom(6);
    DO(dup2(5, fd));
    fill(fd, 'w', 500, 100);
    // The number becomes another file's, and its second descriptor is gone.
    victim = open(beside("victim"), O_RDWR | O_DSYNC);
    close(5);
    DO(dup2(victim, fd));
    MUST(second_descriptor() == -1);
    struct stat status;
    DO(fstat(victim, &status));
    MUST(status.st_size == 0);
}

// A stream closes the descriptor inside of the C library.
static void synchronous_stream(void) {
    begin();
    int fd = open(path, O_RDWR | O_DSYNC);
    fill(fd, 's', 100, 100);
    MUST(second_descriptor() > 0);
    FILE *stream = fdopen(fd, "r+");
    MUST(fclose(stream) == 0 && second_descriptor() == -1);
    snapshot();
}

static int is_locked_for_others(void) {
    pid_t child = fork();
    if (child == 0) {
        int fd = open(path, O_RDWR);
        struct flock found = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        _exit(fcntl(fd, F_GETLK, &found) == 0 && found.l_type == F_WRLCK ? 1 : 0);
    }
    int status;
    DO(waitpid(child, &status, 0));
    return WEXITSTATUS(status);
}

static void synchronous_locked(void) {
    begin();
    int fd = open(path, O_RDWR | O_DSYNC);
    fill(fd, 's', 100, 100);
    MUST(second_descriptor() > 0);
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    DO(fcntl(fd, F_SETLK, &whole));
    MUST(second_descriptor() == -1 && is_locked_for_others());
    fill(fd, 't', 120, 100);
    MUST(is_locked_for_others());
    snapshot();
}

// More than a batch holds.
static void synchronous_large(void) {
    begin();
    int fd = open(path, O_WRONLY | O_SYNC);
    fill(fd, 's', 100, 100);
    char *large = calloc(1, 3 << 20);
    MUST(pwrite(fd, large, 3 << 20, 4096) == 3 << 20);
    snapshot();
    fill(fd, 't', 120, 100);
}

static void synchronous_filled(void) {
    begin();
    int fd = open(path, O_RDWR | O_DSYNC), from = open(beside("base"), O_RDONLY);
    fill(fd, 's', 100, 100);
    MUST(sendfile(fd, from, NULL, 1000) == 1000 && lseek(fd, 0, SEEK_CUR) == 1000);
    snapshot();
    MUST(write(fd, "behind", 6) == 6 && lseek(fd, 0, SEEK_CUR) == 1006);
    snapshot();
}

static void synchronous_passed_on(void) {
    begin();
    int fd = open(path, O_RDWR | O_DSYNC);
    fill(fd, 's', 100, 100);
    if (fork() == 0) {
        char command[64];
        snprintf(command, sizeof command, "printf executed >&%d", fd);
        char *const arguments[] = {"sh", "-c", command, NULL}, *const environment[] = {NULL};
        execve("/bin/sh", arguments, environment);
        _exit(1);
    }
    int status;
    MUST(wait(&status) > 0 && status == 0 && lseek(fd, 0, SEEK_CUR) == 8);
    MUST(write(fd, "behind", 6) == 6 && lseek(fd, 0, SEEK_CUR) == 14);
    snapshot();
}

static void synchronous_borrowed(void) {
    begin();
    int fd = open(path, O_RDWR | O_DSYNC);
    fill(fd, 's', 100, 100);
    pid_t child = vfork();
    if (child == 0)
        _exit(pwrite(fd, "borrowed", 8, 120) == 8 ? 0 : 1);
    int status;
    MUST(waitpid(child, &status, 0) > 0 && status == 0);
    snapshot();
}

// Threads and processes that share a position: no piece is lost, torn or written over.
#define PIECE 20000

static void *sharer(void *argument) {
    char bytes[PIECE];
    memset(bytes, (int)(long)argument, sizeof bytes);
    for (int turn = 0; turn < 100; turn++)
        MUST(write(handled, bytes, sizeof bytes) == sizeof bytes);
    return NULL;
}

static void share(int flags) {
    begin();
    handled = open(path, O_RDWR | O_DSYNC | flags);
    DO(lseek(handled, SIZE, SEEK_SET));
    pid_t children[2];
    for (int child = 0; child < 2; child++) {
        children[child] = fork();
        if (children[child] == 0) {
            sharer((void *)(long)('0' + child));
            _exit(0);
        }
    }
    pthread_t list[2];
    for (long number = 0; number < 2; number++)
        MUST(pthread_create(&list[number], NULL, sharer, (void *)('A' + number)) == 0);
    for (int number = 0; number < 2; number++) {
        MUST(pthread_join(list[number], NULL) == 0);
        int status;
        MUST(waitpid(children[number], &status, 0) > 0 && status == 0);
    }
    struct stat status;
    DO(fstat(handled, &status));
    MUST(status.st_size == SIZE + 400 * PIECE && lseek(handled, 0, SEEK_CUR) == SIZE + 400 * PIECE);
    int pieces['B' + 1] = {0};
    for (int piece = 0; piece < 400; piece++) {
        char bytes[PIECE];
        MUST(pread(handled, bytes, sizeof bytes, SIZE + piece * PIECE) == sizeof bytes);
        for (int at = 1; at < PIECE; at++)
            MUST(bytes[at] == bytes[0]);
        pieces[(int)bytes[0]]++;
    }
    MUST(pieces['0'] == 100 && pieces['1'] == 100 && pieces['A'] == 100 && pieces['B'] == 100);
}

static void synchronous_shared(void) {
    share(0);
}

static void synchronous_shared_append(void) {
    share(O_APPEND);
}

// A child writes until it is killed; prints the number of bytes whose writes had returned.
static void synchronous_killed(void) {
    begin();
    off_t *acknowledged = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    *acknowledged = SIZE;
    for (int round = 0; round < 20; round++) {
        pid_t child = fork();
        if (child == 0) {
            int fd = open(path, O_WRONLY | O_DSYNC);
            DO(lseek(fd, *acknowledged, SEEK_SET));
            memset(block, 'a' + round, 512);
            for (;;) {
                MUST(write(fd, block, 512) == 512);
                __atomic_fetch_add(acknowledged, 512, __ATOMIC_SEQ_CST);
            }
        }
        off_t before = *acknowledged;
        while (__atomic_load_n(acknowledged, __ATOMIC_SEQ_CST) < before + 2 * 512)
            usleep(50);
        usleep(round * 37 % 500);
        DO(kill(child, SIGKILL));
        MUST(waitpid(child, NULL, 0) == child);
    }
    printf("%ld\n", (long)*acknowledged);
}

// What a writer that is killed has written, whoever sees it can commit.
static void killed(void) {
    handled = begin();
    int *turns = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int round = 0; round < 60; round++) {
        *turns = 0;
        pid_t child = fork();
        if (child == 0)
            for (int turn = 0;; turn++) {
                fill(handled, 'a' + round % 26, SIZE + round * 65536 + turn % 128 * 512, 512);
                __atomic_store_n(turns, turn + 1, __ATOMIC_SEQ_CST);
            }
        // On a busy machine it may take long to begin.
        while (__atomic_load_n(turns, __ATOMIC_SEQ_CST) == 0)
            usleep(50);
        usleep(round * 37 % 500);
        DO(kill(child, SIGKILL));
        MUST(waitpid(child, NULL, 0) == child);
        DO(fdatasync(handled));
    }
}

// A process without the log's variable of its own: writes are noted by whoever has the library.
static void two_processes(void) {
    int fd = begin();
    for (int turn = 0; turn < 3; turn++) {
        char command[2 * sizeof path + 16];
        snprintf(command, sizeof command, "%s writer '%s'", other, path);
        MUST(system(command) == 0);
        DO(fdatasync(fd));
    }
}

static void writer(void) {
    int fd = open(path, O_RDWR);
    struct stat status;
    DO(fstat(fd, &status));
    fill(fd, 'w', status.st_size, 1000);
    fill(fd, 'v', 2000, 1000);
}

// What has no place in the log works as without it.
static void plain(void) {
    int fd = begin();
    for (int turn = 0; turn < 3; turn++) {
        fill(fd, 'b' + turn, turn * 100, 100);
        DO(fsync(fd));
        DO(fdatasync(fd));
    }
    int pair[2];
    DO(pipe(pair));
    errno = 0;
    MUST(fsync(pair[1]) == -1 && errno == EINVAL);
    MUST(fsync(12345) == -1 && errno == EBADF);
    int folder = open(beside("."), O_RDONLY | O_DIRECTORY);
    DO(fsync(folder));
    snapshot();
}

// Costs of a write and of a commit.
static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static int by_size(const void *one, const void *other) {
    double difference = *(const double *)one - *(const double *)other;
    return (difference > 0) - (difference < 0);
}

static void measure(void) {
    const int turns = 200000, commits = 3000;
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    for (int round = 0; round < 2; round++) {
        double start = now();
        for (int turn = 0; turn < turns; turn++)
            MUST(pwrite(fd, block, 512, 0) == 512);
        double at = now();
        for (int turn = 0; turn < turns; turn++) {
            if (turn % 64 == 0)
                lseek(fd, 0, SEEK_SET);
            MUST(write(fd, block, 512) == 512);
        }
        double end = now();
        printf("%s pwrite %.0f ns, write %.0f ns\n", round ? "logged" : "before", (at - start) / turns * 1e9,
               (end - at) / turns * 1e9);
        DO(fsync(fd));
    }
    int bare = open(beside("bare"), O_RDWR | O_CREAT, 0600);
    for (int turn = 0; turn < 200; turn++)
        fill(bare, 0, turn * SIZE, SIZE);
    fsync(bare);
    close(bare);
    bare = open(beside("bare"), O_RDWR | O_DIRECT | O_DSYNC);
    char *at = aligned_alloc(4096, 4096);
    memset(at, 1, 4096);
    // One after the other, since others use the disk, too.
    static double of_commits[3000], of_bare[3000];
    for (int turn = 0; turn < commits; turn++) {
        double start = now();
        MUST(pwrite(fd, block, 512, turn % 100 * 512) == 512);
        DO(fdatasync(fd));
        double middle = now();
        MUST(pwrite(bare, at, 4096, turn * 4096) == 4096);
        of_commits[turn] = middle - start;
        of_bare[turn] = now() - middle;
    }
    qsort(of_commits, commits, sizeof *of_commits, by_size);
    qsort(of_bare, commits, sizeof *of_bare, by_size);
    printf("median: write and commit %.1f us, bare O_DIRECT|O_DSYNC write of 4 KiB %.1f us\n",
           of_commits[commits / 2] * 1e6, of_bare[commits / 2] * 1e6);
}

// Syncs of which some are tried by the kernel, and then one behind which no record is live.
static void tried(void) {
    int fd = begin();
    for (int turn = 0; turn < 400; turn++) {
        fill(fd, 'a' + turn % 26, turn * 100, 300);
        DO(turn % 2 ? fsync(fd) : fdatasync(fd));
    }
    DO(fchmod(fd, 0640));
    DO(fsync(fd));
    snapshot();
}

// Waits until a change of a folder was well before.
static void settle(void) {
    struct timespec time = {.tv_nsec = 150000000};
    MUST(nanosleep(&time, NULL) == 0);
}

// Syncs of a folder: two of them, named below, find nothing changed.
static void folders(void) {
    close(begin());
    strcpy(strrchr(path, '/'), "/");
    int folder = open(path, O_RDONLY | O_DIRECTORY);
    MUST(folder >= 0);
    DO(fsync(folder)); // changed just now: not remembered
    DO(fsync(folder));
    settle();
    DO(fsync(folder));
    DO(fsync(folder)); // unchanged
    DO(unlink(beside("base")));
    DO(fsync(folder)); // changed
    settle();
    DO(fchmod(folder, 0750));
    settle();
    DO(fsync(folder)); // changed
    DO(close(folder));
    folder = open(path, O_RDONLY | O_DIRECTORY);
    DO(fdatasync(folder)); // unchanged, by another descriptor
}

#define CASE(name) {#name, name}
static const struct {
    const char *name;
    void (*run)(void);
} CASES[] = {
    CASE(overwrite), CASE(grow), CASE(position), CASE(append), CASE(vectors), CASE(write_only), CASE(write_only_locked), CASE(write_only_anew), CASE(by_number),
    CASE(forked), CASE(borrowed), CASE(duplicates), CASE(reopened), CASE(truncated), CASE(truncated_by_name),
    CASE(opened_anew), CASE(stream_anew), CASE(punched), CASE(renamed), CASE(folder_renamed), CASE(replaced), CASE(unlinked), CASE(linked),
    CASE(attributes), CASE(mapped), CASE(mapped_first), CASE(mapped_in_vain), CASE(streams), CASE(streams_later), CASE(streams_beside), CASE(executed), CASE(all_by_sync), CASE(all_of_a_disk), CASE(raced), CASE(killed), CASE(synchronous),
    CASE(transfers), CASE(unserved), CASE(ring), CASE(passed_on), CASE(asynchronous), CASE(all_files), CASE(direct),
    CASE(closing), CASE(signals), CASE(threads), CASE(cancelled), CASE(two_processes), CASE(writer), CASE(plain), CASE(folders), CASE(tried),
    CASE(synchronous_first), CASE(synchronous_attribute), CASE(synchronous_flags), CASE(synchronous_position), CASE(synchronous_append),
    CASE(synchronous_limits), CASE(synchronous_small_limit), CASE(synchronous_alone), CASE(synchronous_denied),
    CASE(synchronous_direct), CASE(synchronous_direct_later), CASE(synchronous_closing), CASE(synchronous_stream), CASE(synchronous_locked),
    CASE(synchronous_large), CASE(synchronous_filled), CASE(synchronous_passed_on), CASE(synchronous_borrowed),
    CASE(synchronous_shared), CASE(synchronous_shared_append), CASE(synchronous_killed), CASE(inheritor),
    CASE(young), CASE(young_durable), CASE(aged), CASE(measure),
};

int main(int count, char **arguments) {
    if (count != 3)
        return 2;
    snprintf(path, sizeof path, "%s", arguments[2]);
    // No case takes a tenth of it.
    alarm(60);
    snprintf(other, sizeof other, "%s", arguments[0]);
    for (size_t at = 0; at < sizeof CASES / sizeof *CASES; at++)
        if (strcmp(CASES[at].name, arguments[1]) == 0) {
            CASES[at].run();
            return 0;
        }
    return 3;
}
