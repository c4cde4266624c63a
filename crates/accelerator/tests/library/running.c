/* Kernel of the tests: running sum of all bytes, and at the end the number of bytes (both 64 bits). Macros break it. */
#include "bywash_kernel.h"
#include <stdlib.h>

#ifndef VERSION
#define VERSION BYWASH_KERNEL_VERSION
#endif
#ifndef FLAGS
#define FLAGS 0
#endif
#ifndef INPUT_BYTES
#define INPUT_BYTES 1
#endif
#ifndef OUTPUT_BYTES
#define OUTPUT_BYTES 8
#endif
#ifndef END
#define END end
#endif

struct state {
	uint64_t sum;
	uint64_t count;
};

static int64_t begin(void **state)
{
#ifdef BEGIN_FAILS
	(void)state;
	return -12;
#else
	*state = calloc(1, sizeof(struct state));
	return *state ? 0 : -1;
#endif
}

static int64_t run(void *state, const void *input, uint64_t input_bytes, void *output)
{
	struct state *s = state;
	const uint8_t *from = input;
	uint64_t *to = output;

#ifdef RUN_FAILS
	if (s->count >= RUN_FAILS)
		return -5;
#endif
	for (uint64_t i = 0; i < input_bytes; i++)
		to[i] = s->sum += from[i];
	s->count += input_bytes;
#ifdef RUN_OVERRUNS
	for (uint64_t i = 0; i < 4096 / 8; i++)
		to[input_bytes + i] = 1;
#endif
#ifdef RUN_BOASTS
	return (int64_t)(8 * input_bytes + 1);
#else
	return (int64_t)(8 * input_bytes);
#endif
}

static int64_t end(void *state, void *output)
{
	struct state *s = state;

	if (output)
		*(uint64_t *)output = s->count;
	free(s);
	return 8;
}

int64_t (*const unused)(void *, void *) = end;

#ifndef NAME
#define NAME bywash_kernel
#endif
const struct bywash_kernel NAME = {
	.version = VERSION,
	.flags = FLAGS,
	.input_bytes = INPUT_BYTES,
	.output_bytes = OUTPUT_BYTES,
	.begin = begin,
	.run = run,
	.end = END,
};
