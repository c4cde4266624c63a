/*
 * A plugin for QEMU's emulator (TCG) that counts the instructions of x86-64 programs in a virtual machine with one
 * processor, between marks that the programs execute.
 *
 * A mark is the instruction `nopl MARK+N(%rax)`, which does nothing on any processor, and which no compiler makes. Marks
 * are counted themselves by nobody.
 *
 *   START, STOP   instructions in between belong to the sample, which can have several such sections
 *   KEEP, KEEP_2  the sample is complete, and of the first or of the second kind; DROP: it is given up
 *   NEXT          later samples belong to the next series
 *   OPEN, CLOSE   the user instructions in between are cut at each PAUSE instruction, by which programs spin
 *
 * Output, to the file that the argument `out=` names:
 *
 *   S SERIES KIND USER KERNEL CALLS            a sample: instructions, and SYSCALL instructions of the user's
 *   W SERIES LENGTH:CALLS:COUNT ...            cuts between OPEN and CLOSE in order; COUNT follow one another alike
 *
 * An instruction at an address with its highest bit set is the kernel's.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is used of QEMU's interface for plugins, version 1. */
typedef uint64_t plugin_id;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
extern void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct qemu_plugin_tb *));
extern void qemu_plugin_register_atexit_cb(plugin_id, void (*)(plugin_id, void *), void *);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
extern struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
extern const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
extern size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
extern uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
extern void qemu_plugin_register_vcpu_insn_exec_inline(struct qemu_plugin_insn *, int, void *, uint64_t);
extern void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, void (*)(unsigned, void *), int, void *);
enum { ADD_TO_64_BITS = 0, NO_REGISTERS = 0 };

#define EXPORTED __attribute__((visibility("default")))
EXPORTED int qemu_plugin_version = 1;

enum mark { START, STOP, KEEP, KEEP_2, DROP, NEXT, OPEN, CLOSE, MARKS };
/* Displacement of the first mark. */
static const uint32_t MARK = 0x62797700;
/* Greatest number of different cuts in a row between OPEN and CLOSE; what follows is left out. */
enum { CUTS_MAX = 65536 };

struct counts {
    uint64_t user, kernel, calls;
};
struct cut {
    uint64_t length, calls, count;
};

static struct counts now, begin, sample;
static struct cut cuts[CUTS_MAX];
static size_t cut_count;
static struct counts cut_begin;
static bool is_started, is_open;
static unsigned series;
static FILE *out;

static void keep(int kind)
{
    fprintf(out, "S %u %d %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", series, kind, sample.user, sample.kernel, sample.calls);
    memset(&sample, 0, sizeof sample);
}

static void close_cuts(void)
{
    fprintf(out, "W %u", series);
    for (size_t at = 0; at < cut_count; at++)
        fprintf(out, " %" PRIu64 ":%" PRIu64 ":%" PRIu64, cuts[at].length, cuts[at].calls, cuts[at].count);
    fputc('\n', out);
    is_open = false;
}

static void marked(unsigned processor, void *data)
{
    (void)processor;
    switch ((enum mark)(uintptr_t)data) {
    case START:
        begin = now;
        is_started = true;
        break;
    case STOP:
        if (is_started) {
            sample.user += now.user - begin.user;
            sample.kernel += now.kernel - begin.kernel;
            sample.calls += now.calls - begin.calls;
        }
        is_started = false;
        break;
    case KEEP:
        keep(0);
        break;
    case KEEP_2:
        keep(1);
        break;
    case DROP:
        memset(&sample, 0, sizeof sample);
        break;
    case NEXT:
        series++;
        break;
    case OPEN:
        cut_count = 0;
        cut_begin = now;
        is_open = true;
        break;
    case CLOSE:
        if (is_open)
            close_cuts();
        break;
    case MARKS:
        break;
    }
}

static void paused(unsigned processor, void *data)
{
    (void)processor;
    (void)data;
    if (!is_open)
        return;
    struct cut cut = { now.user - cut_begin.user, now.calls - cut_begin.calls, 1 };
    struct cut *last = cut_count > 0 ? &cuts[cut_count - 1] : NULL;
    cut_begin = now;
    if (last && last->length == cut.length && last->calls == cut.calls)
        last->count++;
    else if (cut_count < CUTS_MAX)
        cuts[cut_count++] = cut;
}

/* Returns the mark that an instruction is, or MARKS. */
static enum mark mark_of(const uint8_t *bytes, size_t size)
{
    uint32_t displacement;
    if (size != 7 || bytes[0] != 0x0f || bytes[1] != 0x1f || bytes[2] != 0x80)
        return MARKS;
    memcpy(&displacement, bytes + 3, sizeof displacement);
    return displacement - MARK < MARKS ? (enum mark)(displacement - MARK) : MARKS;
}

static void translated(plugin_id id, struct qemu_plugin_tb *block)
{
    (void)id;
    size_t count = qemu_plugin_tb_n_insns(block);
    for (size_t at = 0; at < count; at++) {
        struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(block, at);
        const uint8_t *bytes = qemu_plugin_insn_data(instruction);
        size_t size = qemu_plugin_insn_size(instruction);
        bool is_kernel = qemu_plugin_insn_vaddr(instruction) >> 63;
        enum mark mark = mark_of(bytes, size);
        if (mark != MARKS) {
            qemu_plugin_register_vcpu_insn_exec_cb(instruction, marked, NO_REGISTERS, (void *)(uintptr_t)mark);
            continue;
        }
        if (!is_kernel && size == 2 && bytes[0] == 0xf3 && bytes[1] == 0x90)
            qemu_plugin_register_vcpu_insn_exec_cb(instruction, paused, NO_REGISTERS, NULL);
        if (!is_kernel && size == 2 && bytes[0] == 0x0f && bytes[1] == 0x05)
            qemu_plugin_register_vcpu_insn_exec_inline(instruction, ADD_TO_64_BITS, &now.calls, 1);
        qemu_plugin_register_vcpu_insn_exec_inline(
            instruction, ADD_TO_64_BITS, is_kernel ? &now.kernel : &now.user, 1);
    }
}

static void ended(plugin_id id, void *data)
{
    (void)id;
    (void)data;
    fclose(out);
}

EXPORTED int qemu_plugin_install(plugin_id id, const void *info, int count, char **arguments)
{
    (void)info;
    for (int at = 0; at < count; at++)
        if (strncmp(arguments[at], "out=", 4) == 0)
            out = fopen(arguments[at] + 4, "w");
    if (!out) {
        fprintf(stderr, "the counting plugin cannot write the file that out= names\n");
        return 1;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, ended, NULL);
    return 0;
}
