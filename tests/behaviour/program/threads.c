/* Threads of one process: what the kernel promises about order and wholeness between them. */
#include "case.h"
#include <sched.h>
#include <stdatomic.h>

enum { SIZE = 8 * PAGE };
static int fd;
static atomic_int stop;
static atomic_int arrived;

static void run_two(void *(*first)(void *), void *(*second)(void *)) {
    pthread_t threads[2];
    EQUAL(pthread_create(&threads[0], NULL, first, (void *)0), 0);
    EQUAL(pthread_create(&threads[1], NULL, second, (void *)1), 0);
    EQUAL(pthread_join(threads[0], NULL), 0);
    EQUAL(pthread_join(threads[1], NULL), 0);
}

/* Both threads leave within a cache line's trip of one another, which a sleeping barrier does not give. */
static void meet(int number) {
    atomic_fetch_add(&arrived, 1);
    for (int spins = 0; atomic_load(&arrived) < 2 * number; spins++)
        if (spins % 4096 == 4095)
            sched_yield();
}

enum { WRITE_ROUNDS = 4000, WRITE_MOST = 6000 };

static off_t place(int round) {
    return round * 137L % (SIZE - WRITE_MOST);
}

static size_t extent(int round) {
    static const size_t extents[] = {8, 100, 4096, 5000, 1000, WRITE_MOST};
    return extents[round % 6];
}

static void *write_whole(void *who) {
    unsigned char own[WRITE_MOST];
    long until = now_ms() + 1500;
    for (int round = 0; round < WRITE_ROUNDS && !atomic_load(&stop); round++) {
        memset(own, (round * 2 + (int)(long)who) % 251 + 1, sizeof own);
        meet(3 * round + 1);
        EQUAL(pwrite(fd, own, extent(round), place(round)), extent(round));
        meet(3 * round + 2);
        if (who == 0) {
            EQUAL(pread(fd, own, extent(round), place(round)), extent(round));
            for (size_t i = 1; i < extent(round); i++)
                if (own[i] != own[0])
                    fail(__FILE__, __LINE__, "round %d: two writes are mixed at byte %zu of %zu", round, i,
                         extent(round));
        }
        if (who == 0 && now_ms() > until)
            atomic_store(&stop, 1);
        meet(3 * round + 3);
    }
    return NULL;
}

/* Of two writes of the same bytes one is last, whole. */
static void overlapping_writes_are_whole(void) {
    fd = make_hot("f", 1, 8);
    run_two(write_whole, write_whole);
}

enum { RECORD = 64, RECORDS = 4000 };
static atomic_int taken[2 * RECORDS];

static void *write_records(void *who) {
    unsigned char record[RECORD];
    for (int i = 0; i < RECORDS; i++) {
        memset(record, (int)(long)who + 1, RECORD);
        memcpy(record, &i, sizeof i);
        EQUAL(write(fd, record, RECORD), RECORD);
    }
    return NULL;
}

static void check_records(void) {
    int next[2] = {0, 0};
    unsigned char record[RECORD];
    EQUAL(size_of(fd), 2 * RECORDS * RECORD);
    for (int i = 0; i < 2 * RECORDS; i++) {
        int number;
        EQUAL(pread(fd, record, RECORD, i * RECORD), RECORD);
        memcpy(&number, record, sizeof number);
        int who = record[RECORD - 1] - 1;
        CHECK(who == 0 || who == 1);
        EQUAL(number, next[who]++);
        for (int byte = sizeof number; byte < RECORD; byte++)
            EQUAL(record[byte], who + 1);
    }
}

/* Writes at one position: none overwrites another, each thread's stay in order. */
static void writes_at_one_position(void) {
    fd = make("f", 1, 0);
    run_two(write_records, write_records);
    check_records();
    EQUAL(lseek(fd, 0, SEEK_SET), 0);
    run_two(write_records, write_records);
    EQUAL(lseek(fd, 0, SEEK_CUR), 2 * RECORDS * RECORD);
    check_records();
}

static void *append_records(void *who) {
    int own = open(path("f"), O_WRONLY | O_APPEND);
    unsigned char record[RECORD];
    for (int i = 0; i < RECORDS; i++) {
        memset(record, (int)(long)who + 1, RECORD);
        memcpy(record, &i, sizeof i);
        EQUAL(write(own, record, RECORD), RECORD);
    }
    return NULL;
}

static void appends_from_two_descriptors(void) {
    fd = make("f", 1, 0);
    run_two(append_records, append_records);
    check_records();
}

static void *take_records(void *unused) {
    unsigned char record[RECORD];
    long got;
    (void)unused;
    while ((got = read(fd, record, RECORD)) == RECORD) {
        int number;
        memcpy(&number, record, sizeof number);
        CHECK(number >= 0 && number < 2 * RECORDS);
        atomic_fetch_add(&taken[number], 1);
    }
    EQUAL(got, 0);
    return NULL;
}

/* Reads at one position: every record is taken exactly once. */
static void reads_at_one_position(void) {
    unsigned char record[RECORD] = {0};
    fd = make("f", 1, 0);
    for (int i = 0; i < 2 * RECORDS; i++) {
        memcpy(record, &i, sizeof i);
        EQUAL(write(fd, record, RECORD), RECORD);
    }
    for (int round = 0; round < 5; round++) {
        EQUAL(lseek(fd, 0, SEEK_SET), 0);
        run_two(take_records, take_records);
        for (int i = 0; i < 2 * RECORDS; i++)
            EQUAL(taken[i], round + 1);
    }
}

static void *cut_and_fill(void *unused) {
    static unsigned char whole[SIZE];
    (void)unused;
    fill(whole, 1, 0, SIZE);
    long until = now_ms() + 500;
    for (int i = 0; now_ms() < until; i++) {
        EQUAL(ftruncate(fd, i % 3 ? 2 * PAGE + 99 : 3 * PAGE), 0);
        EQUAL(pwrite(fd, whole, SIZE, 0), SIZE);
    }
    atomic_store(&stop, 1);
    return NULL;
}

static void *read_beside(void *unused) {
    unsigned char own[2000];
    (void)unused;
    for (int i = 0; !atomic_load(&stop); i++) {
        off_t at = i * 311L % (SIZE - 2000);
        long got = pread(fd, own, 2000, at);
        CHECK(got >= 0 && got <= 2000);
        for (long byte = 0; byte < got; byte++)
            if (own[byte] != pattern(1, at + byte) && own[byte] != 0)
                fail(__FILE__, __LINE__, "offset %lld is %u", (long long)at + byte, own[byte]);
    }
    return NULL;
}

static void readers_beside_truncation(void) {
    fd = make_hot("f", 1, 8);
    run_two(read_beside, cut_and_fill);
    FILE_IS("f", 1, SIZE);
}

enum { SLOTS = 4 };
static atomic_int numbers[SLOTS];

/* Closes and reopens: the numbers go round between files of different patterns. */
static void *close_and_reopen(void *unused) {
    (void)unused;
    char *names[3] = {path("f1"), path("f2"), path("f3")};
    long until = now_ms() + 600;
    for (int i = 0; now_ms() < until; i++) {
        int slot = i % SLOTS, own = atomic_exchange(&numbers[slot], -1);
        EQUAL(close(own), 0);
        own = open(names[i % 3], O_RDWR);
        CHECK(own >= 0);
        unsigned char data[100];
        for (int round = 0; round < 30; round++) {
            EQUAL(pread(own, data, 100, round * 50), 100);
            DATA(data, (unsigned)(i % 3 + 1), round * 50, 100);
        }
        atomic_store(&numbers[slot], own);
    }
    atomic_store(&stop, 1);
    return NULL;
}

static void *read_whatever_is_there(void *unused) {
    unsigned char data[300];
    (void)unused;
    for (int i = 0; !atomic_load(&stop); i++) {
        int own = atomic_load(&numbers[i % SLOTS]);
        off_t at = i * 53L % (SIZE - 300);
        long got = pread(own, data, 300, at);
        if (got < 0) {
            EQUAL(errno, EBADF);
            continue;
        }
        EQUAL(got, 300);
        unsigned tag = data[0] == pattern(1, at) ? 1 : data[0] == pattern(2, at) ? 2 : 3;
        DATA(data, tag, at, 300);
    }
    return NULL;
}

/* A read beside a close gives the old file, the new one, or EBADF: never a mixture. */
static void closing_beside_reads(void) {
    for (unsigned tag = 1; tag <= 3; tag++) {
        char name[3] = {'f', (char)('0' + tag), 0};
        close(make_hot(name, tag, 8));
    }
    for (int slot = 0; slot < SLOTS; slot++)
        numbers[slot] = open(path("f1"), O_RDWR);
    run_two(read_whatever_is_there, close_and_reopen);
    FILE_IS("f1", 1, SIZE);
    FILE_IS("f2", 2, SIZE);
    FILE_IS("f3", 3, SIZE);
}

static void *write_to_own_numbers(void *who) {
    unsigned tag = (unsigned)(long)who + 1;
    char name[3] = {'f', (char)('0' + tag), 0};
    char *whole = path(name);
    unsigned char data[200];
    long until = now_ms() + 500;
    while (now_ms() < until) {
        int own = open(whole, O_RDWR);
        for (int i = 0; i < 40; i++) {
            off_t at = i * 211L % (SIZE - 200);
            fill(data, tag, at, 200);
            EQUAL(pwrite(own, data, 200, at), 200);
            EQUAL(pread(own, data, 200, at), 200);
            DATA(data, tag, at, 200);
            EQUAL(lseek(own, at, SEEK_SET), at);
            EQUAL(write(own, data, 200), 200);
        }
        EQUAL(close(own), 0);
    }
    return NULL;
}

/* Two threads swap numbers all the time; each byte lands in the file that its thread had opened. */
static void numbers_that_change_hands(void) {
    close(make_hot("f1", 1, 8));
    close(make_hot("f2", 2, 8));
    run_two(write_to_own_numbers, write_to_own_numbers);
    FILE_IS("f1", 1, SIZE);
    FILE_IS("f2", 2, SIZE);
}

static void *short_life(void *unused) {
    unsigned char data[300];
    (void)unused;
    for (int i = 0; i < 20; i++) {
        EQUAL(pread(fd, data, 300, i * 100), 300);
        DATA(data, 1, i * 100, 300);
        EQUAL(pwrite(fd, data, 300, i * 100), 300);
    }
    return NULL;
}

static void many_short_threads(void) {
    fd = make_hot("f", 1, 8);
    for (int i = 0; i < 1000; i++)
        run_two(short_life, short_life);
}

static void many_threads_at_once(void) {
    enum { THREADS = 60 };
    pthread_t threads[THREADS];
    fd = make_hot("f", 1, 8);
    for (int i = 0; i < THREADS; i++)
        EQUAL(pthread_create(&threads[i], NULL, short_life, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        EQUAL(pthread_join(threads[i], NULL), 0);
    FILE_IS("f", 1, SIZE);
}

static void *read_for_ever(void *unused) {
    unsigned char data[300];
    (void)unused;
    for (;;)
        EQUAL(pread(fd, data, 300, 100), 300);
    return NULL;
}

static void *write_for_ever(void *unused) {
    unsigned char data[300];
    (void)unused;
    fill(data, 1, 100, 300);
    for (;;)
        EQUAL(pwrite(fd, data, 300, 100), 300);
    return NULL;
}

/* read and write are cancellation points. */
static void threads_can_be_cancelled(void) {
    void *(*const loops[])(void *) = {read_for_ever, write_for_ever};
    fd = make_hot("f", 1, 8);
    alarm(20);
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        void *result;
        EQUAL(pthread_create(&thread, NULL, loops[i % 2], NULL), 0);
        sleep_ms(2);
        EQUAL(pthread_cancel(thread), 0);
        EQUAL(pthread_join(thread, &result), 0);
        EQUAL(result == PTHREAD_CANCELED, 1);
        heat_reads(fd, 1, 0, PAGE);
    }
    heat_writes(fd, 1, 0, SIZE);
    FILE_IS("f", 1, SIZE);
}

const struct test_case thread_cases[] = {
    {"threads/overlapping_writes_are_whole", overlapping_writes_are_whole, READS},
    {"threads/writes_at_one_position", writes_at_one_position, ANY},
    {"threads/appends_from_two_descriptors", appends_from_two_descriptors, ANY},
    {"threads/reads_at_one_position", reads_at_one_position, ANY},
    {"threads/readers_beside_truncation", readers_beside_truncation, READS},
    {"threads/closing_beside_reads", closing_beside_reads, READS},
    {"threads/numbers_that_change_hands", numbers_that_change_hands, READS},
    {"threads/many_short_threads", many_short_threads, READS},
    {"threads/many_threads_at_once", many_threads_at_once, READS},
    {"threads/threads_can_be_cancelled", threads_can_be_cancelled, READS},
    {0},
};
