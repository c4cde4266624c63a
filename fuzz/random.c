/* A driver of fuzz targets that knows nothing about them: it stands in for libFuzzer where coverage is not counted, so that
 * the targets run as they are compiled for tests. Linked with a target (scripts/fuzz --random).
 *
 *   TARGET SECONDS SEED FAILED [INPUT]...
 *
 * Gives the target random inputs for SECONDS: some are new, some are changed from the files INPUT or from earlier inputs. An
 * input that ends the process, or takes 10 seconds, is left in the file FAILED.
 */

#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { INPUT_MAX = 600, POOL = 256, TARGET_SECONDS = 10 };

int LLVMFuzzerInitialize(const int *count, const char *const *const *arguments);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
    size_t size;
    uint8_t data[INPUT_MAX];
};

static struct input pool[POOL];
static size_t pooled;
static struct input now;
static const char *failed;
static uint64_t state;

/* Referred to by libfuzzer-sys; these targets have no mutators of their own. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t size_max) {
    (void)data, (void)size_max;
    return size;
}

/* SplitMix64. */
static uint64_t next(void) {
    uint64_t word = state += 0x9e3779b97f4a7c15;
    word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9;
    word = (word ^ word >> 27) * 0x94d049bb133111eb;
    return word ^ word >> 31;
}

static size_t below(size_t limit) {
    return limit ? next() % limit : 0;
}

static void fill(uint8_t *data, size_t size) {
    for (size_t i = 0; i < size; i++)
        data[i] = (uint8_t)next();
}

/* Small numbers are likely: they choose steps and lengths. */
static uint8_t byte(void) {
    return (uint8_t)(next() % 2 ? next() : next() % 8);
}

static void change(struct input *input) {
    size_t at = below(input->size + 1);
    size_t most = INPUT_MAX - input->size;
    size_t bytes = 1 + below(16);
    switch (next() % 5) {
    case 0: /* One byte is another. */
        if (at < input->size)
            input->data[at] = byte();
        break;
    case 1: /* One bit is another. */
        if (at < input->size)
            input->data[at] ^= (uint8_t)(1 << next() % 8);
        break;
    case 2: /* Bytes are inserted. */
        bytes = bytes < most ? bytes : most;
        memmove(input->data + at + bytes, input->data + at, input->size - at);
        fill(input->data + at, bytes);
        input->size += bytes;
        break;
    case 3: /* Bytes are left out. */
        bytes = bytes < input->size - at ? bytes : input->size - at;
        memmove(input->data + at, input->data + at + bytes, input->size - at - bytes);
        input->size -= bytes;
        break;
    default: { /* The rest is that of another input. */
        const struct input *other = &pool[below(pooled)];
        size_t from = below(other->size + 1);
        bytes = other->size - from < INPUT_MAX - at ? other->size - from : INPUT_MAX - at;
        memcpy(input->data + at, other->data + from, bytes);
        input->size = at + bytes;
    }
    }
}

static void make(void) {
    if (pooled == 0 || next() % 4 == 0) {
        now.size = below(next() % 2 ? 64 : INPUT_MAX + 1);
        for (size_t i = 0; i < now.size; i++)
            now.data[i] = byte();
    } else {
        now = pool[below(pooled)];
        for (size_t times = 1 + below(8); times > 0; times--)
            change(&now);
    }
    /* Half of the pool stays: the files, or the first inputs. */
    size_t at = pooled < POOL ? pooled++ : POOL / 2 + below(POOL / 2);
    pool[at] = now;
}

static void keep(int number) {
    int file = open(failed, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (file < 0 || write(file, now.data, now.size) != (ssize_t)now.size || close(file) != 0)
        _exit(3);
    static const char slow[] = "random: the input takes more than 10 seconds\n";
    if (number == SIGALRM && write(STDERR_FILENO, slow, sizeof slow - 1) < 0)
        _exit(3);
    signal(number, SIG_DFL);
    raise(number);
}

static void read_input(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file || pooled == POOL / 2) {
        fprintf(stderr, "random: %s: %s\n", path, file ? "more files than 128" : "cannot be opened");
        exit(2);
    }
    pool[pooled].size = fread(pool[pooled].data, 1, INPUT_MAX, file);
    pooled++;
    fclose(file);
}

int main(int count, char **arguments) {
    if (count < 4) {
        fprintf(stderr, "usage: %s SECONDS SEED FAILED [INPUT]...\n", arguments[0]);
        return 2;
    }
    state = strtoull(arguments[2], NULL, 10);
    failed = arguments[3];
    for (int i = 4; i < count; i++)
        read_input(arguments[i]);
    static const int ends[] = {SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGALRM};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        signal(ends[i], keep);
    LLVMFuzzerInitialize(&count, (const char *const *const *)&arguments);
    size_t files = pooled, inputs = 0;
    for (time_t end = time(NULL) + atoi(arguments[1]); time(NULL) < end || inputs < files; inputs++) {
        if (inputs < files)
            now = pool[inputs];
        else
            make();
        alarm(TARGET_SECONDS);
        LLVMFuzzerTestOneInput(now.data, now.size);
    }
    alarm(0);
    printf("%zu inputs\n", inputs);
    return 0;
}
