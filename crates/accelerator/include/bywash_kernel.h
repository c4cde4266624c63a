/* Bywash: kernel of a shared library, which an accelerator runs on data as it passes (accel:so=FILE).
 *
 * The library defines the constant bywash_kernel. Compile it, for example, with cc -O2 -shared -fPIC -o kernel.so kernel.c
 *
 * Input comes in blocks of whole units; a flow whose data ends in the middle of a unit fails. A block's output has at most
 * output_bytes for each unit of the block, and the outputs of all blocks follow each other in the order of the input.
 *
 * The library runs in the caller's process, with all rights of the caller. It must not write beyond the sizes named here; a
 * page without access behind each buffer ends the process if it does.
 */
#ifndef BYWASH_KERNEL_H
#define BYWASH_KERNEL_H

#include <stdint.h>

/* Version of struct bywash_kernel. */
#define BYWASH_KERNEL_VERSION 1

/* Flag: blocks do not depend on each other. Several threads run them, each with a state of its own, in any order; output of
 * end is not used. Without the flag one thread runs all blocks in order, with one state. */
#define BYWASH_KERNEL_INDEPENDENT 1

struct bywash_kernel {
	/* BYWASH_KERNEL_VERSION */
	uint32_t version;
	/* BYWASH_KERNEL_INDEPENDENT, or 0 */
	uint32_t flags;
	/* Size of a unit of input, in bytes: 1 to 16 MiB */
	uint64_t input_bytes;
	/* Greatest size of the output for a unit, in bytes: 1 to 16 MiB */
	uint64_t output_bytes;
	/* Makes a state: sets *state, to anything. Returns 0, or a negative error. */
	int64_t (*begin)(void **state);
	/* Computes a block of input_bytes, a multiple of the unit. Returns the number of bytes that it wrote to output, or a
	 * negative error, which ends the flow. One thread at a time uses a state. */
	int64_t (*run)(void *state, const void *input, uint64_t input_bytes, void *output);
	/* Frees a state, once for each begin that returned 0. If output is not null, the input has ended: writes what is still to
	 * be output, at most output_bytes, and returns its size or a negative error. */
	int64_t (*end)(void *state, void *output);
};

#ifdef __cplusplus
extern "C"
#else
extern
#endif
const struct bywash_kernel bywash_kernel;

#endif
