/* Streams: stdio on top of hot descriptors. glibc's own reads and writes pass no preloaded symbol. */
#include "case.h"
#include <stdarg.h>

enum { SIZE = 4 * PAGE };
static unsigned char data[SIZE];

static int hot_at_500(void) {
    int fd = make_hot("f", 1, 4);
    EQUAL(lseek(fd, 400, SEEK_SET), 400);
    EQUAL(read(fd, data, 100), 100);
    return fd;
}

static void fdopen_goes_on_at_the_position(void) {
    int fd = hot_at_500();
    FILE *stream = fdopen(fd, "r+");
    CHECK(stream != NULL);
    EQUAL(ftell(stream), 500);
    EQUAL(fread(data, 1, 300, stream), 300);
    DATA(data, 1, 500, 300);
    EQUAL(fseek(stream, 1000, SEEK_SET), 0);
    fill(data, 1, 1000, 100);
    EQUAL(fwrite(data, 1, 100, stream), 100);
    EQUAL(fflush(stream), 0);
    EQUAL(lseek(fd, 0, SEEK_CUR), 1100);
    EQUAL(read(fd, data, 100), 100);
    DATA(data, 1, 1100, 100);
    EQUAL(fclose(stream), 0);
    FAILS(read(fd, data, 1), EBADF);
    FAILS(pread(fd, data, 1, 0), EBADF);
    FILE_IS("f", 1, SIZE);
    EQUAL(make("g", 2, PAGE), fd);
    heat_reads(fd, 2, 0, PAGE);
}

static void a_stream_may_be_unbuffered(void) {
    int fd = hot_at_500();
    FILE *stream = fdopen(fd, "r+");
    EQUAL(setvbuf(stream, NULL, _IONBF, 0), 0);
    for (int i = 0; i < 20; i++) {
        EQUAL(fread(data, 1, 10, stream), 10);
        DATA(data, 1, 500 + i * 20, 10);
        EQUAL(read(fd, data, 10), 10);
        DATA(data, 1, 510 + i * 20, 10);
    }
    EQUAL(lseek(fd, 0, SEEK_CUR), 900);
}

static void appending_stream(void) {
    int fd = make_hot("f", 1, 4);
    FILE *stream = fdopen(fd, "a");
    fill(data, 1, SIZE, 100);
    EQUAL(fwrite(data, 1, 100, stream), 100);
    EQUAL(fflush(stream), 0);
    EQUAL(size_of(fd), SIZE + 100);
    EQUAL(lseek(fd, 0, SEEK_CUR), SIZE + 100);
    fill(data, 1, SIZE + 100, 100);
    EQUAL(write(fd, data, 100), 100);
    EQUAL(fclose(stream), 0);
    FILE_IS("f", 1, SIZE + 200);
}

static int through_vdprintf(int fd, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vdprintf(fd, format, arguments);
    va_end(arguments);
    return length;
}

static void dprintf_writes_at_the_position(void) {
    int fd = hot_at_500();
    EQUAL(dprintf(fd, "%s-%d", "abc", 42), 6);
    EQUAL(lseek(fd, 0, SEEK_CUR), 506);
    EQUAL(through_vdprintf(fd, "%s", "xyz"), 3);
    EQUAL(lseek(fd, 0, SEEK_CUR), 509);
    EQUAL(pread(fd, data, 9, 500), 9);
    EQUAL(memcmp(data, "abc-42xyz", 9), 0);
    EQUAL(read(fd, data, 100), 100);
    DATA(data, 1, 509, 100);
}

static void standard_input_from_a_reopened_number(void) {
    EQUAL(close(make_hot("f", 1, 4)), 0);
    EQUAL(close(0), 0);
    EQUAL(open(path("f"), O_RDWR), 0);
    heat_reads(0, 1, 0, SIZE);
    EQUAL(read(0, data, 100), 100);
    DATA(data, 1, 0, 100);
    for (int i = 0; i < 50; i++)
        EQUAL(getchar(), pattern(1, 100 + i));
    EQUAL(fflush(stdin), 0);
    EQUAL(lseek(0, 0, SEEK_CUR), 150);
    EQUAL(read(0, data, 100), 100);
    DATA(data, 1, 150, 100);
}

static void standard_output_to_a_reopened_number(void) {
    int fd = make_hot("f", 1, 4);
    EQUAL(dup2(fd, 1), 1);
    EQUAL(lseek(1, 100, SEEK_SET), 100);
    EQUAL(write(1, "raw", 3), 3);
    EQUAL(printf("buffered %d", 7), 10);
    EQUAL(fflush(stdout), 0);
    EQUAL(write(fd, "tail", 4), 4);
    EQUAL(pread(fd, data, 17, 100), 17);
    EQUAL(memcmp(data, "rawbuffered 7tail", 17), 0);
    EQUAL(puts("x"), 2);
    EQUAL(fclose(stdout), 0);
    EQUAL(lseek(fd, 0, SEEK_CUR), 119);
}

static void standard_error_to_a_hot_file(void) {
    int fd = make_hot("f", 1, 4), saved = dup(2);
    EQUAL(lseek(fd, 100, SEEK_SET), 100);
    EQUAL(read(fd, data, 10), 10);
    EQUAL(dup2(fd, 2), 2);
    errno = ENOENT;
    perror("word");
    psignal(SIGTERM, "signal");
    EQUAL(dup2(saved, 2), 2);
    EQUAL(lseek(fd, 0, SEEK_CUR), 110 + 32 + 19);
    EQUAL(pread(fd, data, 32, 110), 32);
    EQUAL(memcmp(data, "word: No such file or directory\n", 32), 0);
}

static void freopen_replaces_the_file(void) {
    EQUAL(close(make_hot("g", 2, 4)), 0);
    int fd = hot_at_500();
    FILE *stream = fdopen(fd, "r+");
    EQUAL(fread(data, 1, 10, stream), 10);
    stream = freopen(path("g"), "r+", stream);
    CHECK(stream != NULL);
    int new = fileno(stream);
    EQUAL(read(new, data, 100), 100);
    DATA(data, 2, 0, 100);
    heat_reads(new, 2, 0, SIZE);
    EQUAL(fread(data, 1, 100, stream), 100);
    DATA(data, 2, 100, 100);
    EQUAL(fclose(stream), 0);
    FAILS(read(new, data, 1), EBADF);
    FILE_IS("f", 1, SIZE);
}

static void a_stream_and_a_descriptor_of_one_file(void) {
    int fd = make_hot("f", 1, 4);
    FILE *stream = fopen(path("f"), "r+");
    for (int i = 0; i < 100; i++) {
        EQUAL(pwrite(fd, "<word>", 6, i * 50), 6);
        EQUAL(fseek(stream, i * 50, SEEK_SET), 0);
        EQUAL(fread(data, 1, 6, stream), 6);
        EQUAL(memcmp(data, "<word>", 6), 0);
        EQUAL(fseek(stream, i * 50, SEEK_SET), 0);
        EQUAL(fputs("[text]", stream) >= 0, 1);
        EQUAL(fflush(stream), 0);
        EQUAL(pread(fd, data, 6, i * 50), 6);
        EQUAL(memcmp(data, "[text]", 6), 0);
    }
    EQUAL(fclose(stream), 0);
}

static void lines_from_a_hot_descriptor(void) {
    int fd = make_hot("f", 1, 1);
    for (int i = 0; i < 200; i++)
        EQUAL(dprintf(fd, "line %03d\n", i), 9);
    EQUAL(lseek(fd, 0, SEEK_SET), 0);
    char line[10];
    for (int i = 0; i < 10; i++) {
        EQUAL(read(fd, line, 9), 9);
        line[9] = 0;
        EQUAL(atoi(line + 5), i);
    }
    FILE *stream = fdopen(fd, "r");
    char *whole = NULL;
    size_t room = 0;
    for (int i = 10; i < 200; i++) {
        EQUAL(getline(&whole, &room, stream), 9);
        EQUAL(atoi(whole + 5), i);
    }
}

/* exit() gives back what a stream had read too much, so that the parent goes on after it. */
static void a_childs_exit_leaves_the_position_after_what_it_used(void) {
    int fd = hot_at_500();
    EQUAL(dup2(fd, 0), 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        for (int i = 0; i < 50; i++)
            EQUAL(getchar(), pattern(1, 500 + i));
        exit(0);
    }
    AWAIT(pid);
    off_t at = lseek(fd, 0, SEEK_CUR);
    EQUAL(at, kernel_position(fd));
    EQUAL(read(fd, data, 100), 100);
    DATA(data, 1, at, 100);
}

static void temporary_streams(void) {
    FILE *stream = tmpfile();
    CHECK(stream != NULL);
    int fd = fileno(stream);
    fill(data, 3, 0, SIZE);
    EQUAL(fwrite(data, 1, SIZE, stream), SIZE);
    EQUAL(fflush(stream), 0);
    heat_reads(fd, 3, 0, SIZE);
    heat_writes(fd, 3, 0, SIZE);
    EQUAL(lseek(fd, 0, SEEK_CUR), SIZE);
    EQUAL(fclose(stream), 0);
    FAILS(pread(fd, data, 1, 0), EBADF);
}

const struct test_case stream_cases[] = {
    {"streams/fdopen_goes_on_at_the_position", fdopen_goes_on_at_the_position, READS},
    {"streams/a_stream_may_be_unbuffered", a_stream_may_be_unbuffered, READS},
    {"streams/appending_stream", appending_stream, READS},
    {"streams/dprintf_writes_at_the_position", dprintf_writes_at_the_position, READS},
    {"streams/standard_input_from_a_reopened_number", standard_input_from_a_reopened_number, READS},
    {"streams/standard_output_to_a_reopened_number", standard_output_to_a_reopened_number, READS},
    {"streams/standard_error_to_a_hot_file", standard_error_to_a_hot_file, READS},
    {"streams/freopen_replaces_the_file", freopen_replaces_the_file, READS},
    {"streams/a_stream_and_a_descriptor_of_one_file", a_stream_and_a_descriptor_of_one_file, READS},
    {"streams/lines_from_a_hot_descriptor", lines_from_a_hot_descriptor, READS},
    {"streams/a_childs_exit_leaves_the_position_after_what_it_used",
     a_childs_exit_leaves_the_position_after_what_it_used, READS},
    {"streams/temporary_streams", temporary_streams, ANY},
    {0},
};
