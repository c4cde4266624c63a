/* Sharing: the program's own mappings of the file, other processes, descriptors handed over sockets. */
#include "case.h"
#include <sys/socket.h>

static unsigned char data[4 * PAGE];

static void a_mapping_and_calls_see_each_other(void) {
    int fd = make_hot("f", 1, 4);
    unsigned char *map = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED);
    for (int i = 0; i < 200; i++) {
        off_t at = i * 71;
        memset(data, i, 50);
        EQUAL(pwrite(fd, data, 50, at), 50);
        EQUAL(memcmp(map + at, data, 50), 0);
        map[at] = (unsigned char)(i + 1);
        EQUAL(pread(fd, data, 50, at), 50);
        EQUAL(data[0], (unsigned char)(i + 1));
    }
    EQUAL(msync(map, 4 * PAGE, MS_SYNC), 0);
    EQUAL(munmap(map, 4 * PAGE), 0);
    EQUAL(pread(fd, data, 10, 0), 10);
    EQUAL(data[0], 1);
}

static void a_mapping_outlives_the_descriptor(void) {
    int fd = make_hot("f", 1, 4);
    unsigned char *map = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    EQUAL(close(fd), 0);
    DATA(map, 1, 0, 4 * PAGE);
    map[5] = 99;
    fd = open(path("f"), O_RDONLY);
    EQUAL(pread(fd, data, 10, 0), 10);
    EQUAL(data[5], 99);
}

static void a_private_mapping_is_private(void) {
    int fd = make_hot("f", 1, 4);
    unsigned char *map = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    memset(map, 0, 100);
    heat_reads(fd, 1, 0, 4 * PAGE);
    EQUAL(pwrite(fd, "zzz", 3, PAGE), 3);
    EQUAL(memcmp(map + PAGE, "zzz", 3), 0);
    EQUAL(munmap(map, 4 * PAGE), 0);
}

/* The program maps its own pages over ranges it chooses, next to and over where others lie. */
static void fixed_mappings_do_not_meet_the_librarys(void) {
    int fd = make_hot("f", 1, 4);
    for (int i = 0; i < 50; i++) {
        void *place = mmap(NULL, 1 << 21, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        EQUAL(mmap(place, 1 << 20, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == place, 1);
        DATA(place, 1, 0, 4 * PAGE);
        heat_reads(fd, 1, 0, PAGE);
        EQUAL(munmap(place, 1 << 21), 0);
    }
    heat_reads(fd, 1, 0, 4 * PAGE);
}

/* Lock-step with another process that uses plain system calls. */
static void other_processes_see_every_byte(void) {
    int fd = make_hot("f", 1, 4), to[2], from[2];
    EQUAL(pipe(to), 0);
    EQUAL(pipe(from), 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        int own = (int)KERNEL(SYS_open, (long)path("f"), (long)O_RDWR);
        for (int i = 0; i < 200; i++) {
            int got;
            EQUAL(KERNEL(SYS_read, (long)to[0], (long)&got, 4L), 4);
            EQUAL(KERNEL(SYS_pread64, (long)own, (long)data, 60L, i * 77L), 60);
            for (int byte = 0; byte < 60; byte++)
                EQUAL(data[byte], (unsigned char)got);
            memset(data, got + 1, 60);
            EQUAL(KERNEL(SYS_pwrite64, (long)own, (long)data, 60L, i * 77L), 60);
            EQUAL(KERNEL(SYS_write, (long)from[1], (long)&got, 4L), 4);
        }
        _exit(0);
    }
    for (int i = 0; i < 200; i++) {
        memset(data, i, 60);
        EQUAL(pwrite(fd, data, 60, i * 77), 60);
        EQUAL(write(to[1], &i, 4), 4);
        int got;
        EQUAL(read(from[0], &got, 4), 4);
        EQUAL(pread(fd, data, 60, i * 77), 60);
        for (int byte = 0; byte < 60; byte++)
            EQUAL(data[byte], (unsigned char)(i + 1));
    }
    AWAIT(pid);
}

static void hand_over(int socket, int fd) {
    char byte = 'x', room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    EQUAL(sendmsg(socket, &message, 0), 1);
}

static int take_over(int socket) {
    char byte, room[CMSG_SPACE(sizeof(int))];
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    EQUAL(recvmsg(socket, &message, 0), 1);
    int fd;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

static void a_descriptor_passed_over_a_socket_shares_its_position(void) {
    int ends[2];
    EQUAL(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        int fd = take_over(ends[1]);
        EQUAL(lseek(fd, 0, SEEK_CUR), 100);
        EQUAL(read(fd, data, 50), 50);
        DATA(data, 1, 100, 50);
        heat_reads(fd, 1, 0, 4 * PAGE);
        EQUAL(write(ends[1], "a", 1), 1);
        EQUAL(read(ends[1], data, 1), 1);
        EQUAL(lseek(fd, 0, SEEK_CUR), 200);
        EQUAL(lseek(fd, 1000, SEEK_SET), 1000);
        EQUAL(write(ends[1], "a", 1), 1);
        EQUAL(read(ends[1], data, 1), 1);
        _exit(0);
    }
    int fd = make_hot("f", 1, 4);
    EQUAL(read(fd, data, 100), 100);
    hand_over(ends[0], fd);
    EQUAL(read(ends[0], data, 1), 1);
    EQUAL(read(fd, data, 50), 50);
    DATA(data, 1, 150, 50);
    EQUAL(write(ends[0], "a", 1), 1);
    EQUAL(read(ends[0], data, 1), 1);
    EQUAL(read(fd, data, 50), 50);
    DATA(data, 1, 1000, 50);
    EQUAL(write(ends[0], "a", 1), 1);
    AWAIT(pid);
}

static void a_descriptor_passed_to_oneself(void) {
    int ends[2], fd = make_hot("f", 1, 4);
    EQUAL(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), 0);
    EQUAL(read(fd, data, 100), 100);
    hand_over(ends[0], fd);
    EQUAL(read(fd, data, 100), 100);
    int copy = take_over(ends[1]);
    EQUAL(lseek(copy, 0, SEEK_CUR), 200);
    EQUAL(read(copy, data, 100), 100);
    EQUAL(lseek(fd, 0, SEEK_CUR), 300);
    EQUAL(close(fd), 0);
    heat_reads(copy, 1, 0, 4 * PAGE);
    EQUAL(read(copy, data, 100), 100);
    DATA(data, 1, 300, 100);
}

/* Handed over before any file was used much, and used much after. */
static void a_descriptor_passed_while_it_is_cold(void) {
    int ends[2], fd = make("f", 1, 4 * PAGE);
    EQUAL(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), 0);
    hand_over(ends[0], fd);
    int copy = take_over(ends[1]);
    heat_reads(fd, 1, 0, 4 * PAGE);
    for (int round = 0; round < 40; round++) {
        EQUAL(read(fd, data, 100), 100);
        DATA(data, 1, round * 200, 100);
        EQUAL(read(copy, data, 100), 100);
        DATA(data, 1, round * 200 + 100, 100);
    }
}

static void by_many_messages_at_once(void) {
    int ends[2], fd = make_hot("f", 1, 4);
    EQUAL(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), 0);
    EQUAL(read(fd, data, 100), 100);
    char byte = 'x', room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {&byte, 1};
    struct mmsghdr messages[2] = {
        {.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}},
        {.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room}},
    };
    struct cmsghdr *head = CMSG_FIRSTHDR(&messages[1].msg_hdr);
    *head = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    EQUAL(sendmmsg(ends[0], messages, 2, 0), 2);
    EQUAL(recv(ends[1], &byte, 1, 0), 1);
    int copy = take_over(ends[1]);
    EQUAL(read(copy, data, 100), 100);
    DATA(data, 1, 100, 100);
    EQUAL(read(fd, data, 100), 100);
    DATA(data, 1, 200, 100);
}

static void dropped_caches_change_nothing(void) {
    int fd = make_hot("f", 1, 4);
    EQUAL(fsync(fd), 0);
    for (int i = 0; i < 20; i++) {
        EQUAL(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
        EQUAL(readahead(fd, 0, 4 * PAGE), 0);
        EQUAL(pread(fd, data, 100, i * 100), 100);
        DATA(data, 1, i * 100, 100);
    }
    heat_writes(fd, 1, 0, 4 * PAGE);
    FILE_IS("f", 1, 4 * PAGE);
}

const struct test_case sharing_cases[] = {
    {"sharing/a_mapping_and_calls_see_each_other", a_mapping_and_calls_see_each_other, READS | WRITES},
    {"sharing/a_mapping_outlives_the_descriptor", a_mapping_outlives_the_descriptor, READS},
    {"sharing/a_private_mapping_is_private", a_private_mapping_is_private, READS},
    {"sharing/fixed_mappings_do_not_meet_the_librarys", fixed_mappings_do_not_meet_the_librarys, READS},
    {"sharing/other_processes_see_every_byte", other_processes_see_every_byte, READS},
    {"sharing/a_descriptor_passed_over_a_socket_shares_its_position",
     a_descriptor_passed_over_a_socket_shares_its_position, READS},
    {"sharing/a_descriptor_passed_while_it_is_cold", a_descriptor_passed_while_it_is_cold, READS},
    {"sharing/a_descriptor_passed_to_oneself", a_descriptor_passed_to_oneself, READS},
    {"sharing/by_many_messages_at_once", by_many_messages_at_once, READS},
    {"sharing/dropped_caches_change_nothing", dropped_caches_change_nothing, READS},
    {0},
};
