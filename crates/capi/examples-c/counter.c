/* Draws a counter that moves across a window: a block whose stripes are the bits of the frame's number. Each frame is drawn
 * in memory that the display server has mapped, so that nothing is copied to it.
 *
 *   cc counter.c -o counter $(pkg-config --cflags --libs bywash) && ./counter [FRAMES]
 */
#include "example.h"

#include <inttypes.h>

enum { WIDTH = 640, HEIGHT = 360, STRIPE = 16, STRIPES = 16, BLOCK = STRIPE * STRIPES };

static uint32_t color(uint32_t number, uint32_t x, uint32_t y)
{
	uint32_t left = number * 4 % (WIDTH - BLOCK);
	if (y >= HEIGHT / 3 && y < 2 * HEIGHT / 3 && x >= left && x < left + BLOCK)
		return number >> (STRIPES - 1 - (x - left) / STRIPE) & 1 ? 0xffffb000 : 0xff303030;
	return 0xff000000 | y * 255 / HEIGHT;
}

int main(int count, char **arguments)
{
	uint32_t frames = count > 1 ? (uint32_t)strtoul(arguments[1], NULL, 10) : 600;
	struct bywash_surface_options options = {0};
	struct bywash_surface surface = {0};
	struct bywash_surface_stats stats;
	double begin;
	must(bywash_surface_options_new(WIDTH, HEIGHT, &options));
	must(bywash_surface_options_set_title(options, "counter"));
	must(bywash_surface_open(options, &surface));
	must(bywash_surface_options_free(&options));
	begin = seconds();
	for (uint32_t number = 0; number < frames; number++) {
		struct bywash_frame frame = {0};
		struct bywash_pixels pixels;
		/* Waits until the display asks for a frame and has returned one. */
		must(bywash_surface_frame(surface, -1, &frame));
		must(bywash_frame_map(frame, &pixels));
		for (uint32_t y = 0; y < pixels.height; y++) {
			uint32_t *row = (uint32_t *)(pixels.bytes + y * pixels.row_bytes);
			for (uint32_t x = 0; x < pixels.width; x++)
				row[x] = color(number, x, y);
		}
		must(bywash_surface_present(surface, &frame, NULL, 0));
	}
	must(bywash_surface_finish(surface));
	must(bywash_surface_get_stats(surface, &stats, sizeof stats));
	printf("%" PRIu64 " frames, %.0f a second\n", stats.presented, frames / (seconds() - begin));
	must(bywash_surface_close(&surface));
	return 0;
}
