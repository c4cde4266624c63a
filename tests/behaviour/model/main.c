/* `model SEED STEPS FOLDER`: one run. Exit status 0: the twins agreed to the end. 1: stderr says where not. */
#include "model.h"
#include <sys/vfs.h>

const char *self;

static struct {
    struct operation operations[64];
    int count, weights;
} mix;

static void add(const struct operation *operations) {
    for (; operations->run; operations++) {
        mix.operations[mix.count++] = *operations;
        mix.weights += operations->weight;
    }
}

static void one_step(void) {
    int left = (int)draw((uint64_t)mix.weights);
    for (int i = 0; i < mix.count; i++) {
        left -= mix.operations[i].weight;
        if (left < 0) {
            mix.operations[i].run();
            break;
        }
    }
    int slot = open_slot();
    if (slot >= 0 && chance(4))
        check_position(&slots[slot]);
    if (chance(400))
        check_everything();
}

/* A child that takes a step when its parent says so, with descriptors that it inherited. */
struct child {
    pid_t pid;
    int to, from;
};
static struct child children[CHILDREN];

static _Noreturn void serve(int commands, int answers) {
    uint64_t seed;
    while (read(commands, &seed, sizeof seed) == sizeof seed) {
        generator = seed;
        one_step();
        if (write(answers, "", 1) != 1)
            break;
    }
    KERNEL(SYS_exit_group, 0L);
    abort();
}

static void start_child(struct child *child) {
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0)
        differ("no pipe: errno %d", errno);
    describe("fork child %d", (int)(child - children));
    fflush(NULL);
    shared->forked = shared->holes_unseen = 1;
    pid_t pid = fork();
    if (pid < 0)
        differ("no fork: errno %d", errno);
    if (pid == 0) {
        for (int i = 0; i < CHILDREN; i++)
            if (children[i].pid) {
                close(children[i].to);
                close(children[i].from);
                children[i].pid = 0;
            }
        close(to[1]);
        close(from[0]);
        serve(to[0], from[1]);
    }
    close(to[0]);
    close(from[1]);
    *child = (struct child){pid, to[1], from[0]};
}

static void child_step(struct child *child) {
    uint64_t seed = draw(UINT64_MAX);
    char byte;
    describe("step of child %d", (int)(child - children));
    if (write(child->to, &seed, sizeof seed) != sizeof seed || read(child->from, &byte, 1) != 1)
        differ("child %d failed", (int)(child - children));
}

static void end_child(struct child *child) {
    int killed = chance(2), status;
    describe("%s child %d", killed ? "kill" : "end", (int)(child - children));
    if (killed)
        kill(child->pid, SIGKILL);
    close(child->to);
    close(child->from);
    if (waitpid(child->pid, &status, 0) != child->pid || status != (killed ? SIGKILL : 0))
        differ("a child ended with status %#x", (unsigned)status);
    child->pid = 0;
}

static void run(long steps) {
    for (long step = 0; step < steps; step++) {
        struct child *child = &children[draw(CHILDREN)];
        if (!child->pid && chance(400))
            start_child(child);
        else if (child->pid && chance(150))
            end_child(child);
        else if (child->pid && chance(2))
            child_step(child);
        else
            one_step();
    }
    for (int i = 0; i < CHILDREN; i++)
        if (children[i].pid)
            end_child(&children[i]);
    check_everything();
}

static void begin(void) {
    unsigned char page[PAGE];
    for (int slot = 0; slot < SLOTS; slot++)
        slots[slot].a = slots[slot].b = -1;
    for (int name = 0; name < NAMES; name++) {
        shared->current[name] = shared->files++;
        int a = open(name_of('a', name), O_RDWR | O_CREAT | O_EXCL, 0600);
        long b = KERNEL(SYS_open, (long)name_of('b', name), (long)(O_RDWR | O_CREAT | O_EXCL), 0600L);
        for (int i = 0; i < 6 * (name + 1); i++) {
            memset(page, i + 1, PAGE);
            agree("write", write(a, page, PAGE), KERNEL(SYS_write, b, (long)page, (long)PAGE));
        }
        slots[name] = (struct slot){a, (int)b, shared->current[name], O_RDWR};
    }
}

/* `--compare A B LENGTH`: inherited descriptors of a pair give the same from where they stand. */
static int compare(char **words) {
    static unsigned char a[BUFFER], b[BUFFER];
    int length = atoi(words[2]), fd_a = atoi(words[0]), fd_b = atoi(words[1]);
    agree("position", lseek(fd_a, 0, SEEK_CUR), KERNEL(SYS_lseek, (long)fd_b, 0L, (long)SEEK_CUR));
    long got = answered(read(fd_a, a, (size_t)length % BUFFER));
    agree("read", got, KERNEL(SYS_read, (long)fd_b, (long)b, (long)length));
    return got > 0 && memcmp(a, b, (size_t)got) != 0;
}

int main(int count, char **words) {
    static char own[PATH_MAX];
    struct rlimit no_core = {0, 0};
    struct statfs fs;
    self = realpath("/proc/self/exe", own);
    setrlimit(RLIMIT_CORE, &no_core);
    signal(SIGXFSZ, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    if (count == 5 && strcmp(words[1], "--compare") == 0)
        return compare(words + 2);
    if (count != 4 || chdir(words[3]) != 0 || statfs(".", &fs) != 0) {
        fprintf(stderr, "usage: model SEED STEPS FOLDER\n");
        return 2;
    }
    on_tmpfs = fs.f_type == 0x01021994;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    generator = strtoull(words[1], NULL, 10);
    add(data_operations);
    add(table_operations);
    add(shape_operations);
    add(share_operations);
    begin();
    run(atol(words[2]));
    return 0;
}
