/* Kernel that multiplies all numbers (float, little-endian) by 2.5.
 *
 * cc -O2 -Wall -Werror -shared -fPIC -I crates/accelerator/include -o scale.so crates/accelerator/examples/scale.c
 */
#include "bywash_kernel.h"

static int64_t begin(void **state)
{
	*state = 0;
	return 0;
}

static int64_t run(void *state, const void *input, uint64_t input_bytes, void *output)
{
	const float *from = input;
	float *to = output;

	(void)state;
	for (uint64_t i = 0; i < input_bytes / sizeof(float); i++)
		to[i] = 2.5f * from[i];
	return (int64_t)input_bytes;
}

static int64_t end(void *state, void *output)
{
	(void)state;
	(void)output;
	return 0;
}

const struct bywash_kernel bywash_kernel = {
	.version = BYWASH_KERNEL_VERSION,
	.flags = BYWASH_KERNEL_INDEPENDENT,
	.input_bytes = sizeof(float),
	.output_bytes = sizeof(float),
	.begin = begin,
	.run = run,
	.end = end,
};
