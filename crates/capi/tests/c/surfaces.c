/* Surfaces on the display whose kind and name are given. Says "shown" when its picture is on the screen, and goes on when
 * somebody has looked at it and writes a line. */
#include "check.h"

#include <poll.h>

static const struct bywash_surface NO_SURFACE = {0};

/* The picture that c.rs expects. */
static uint32_t pixel(uint32_t x, uint32_t y)
{
	return 0xff000000 | (x * 7 & 0xff) << 16 | (y * 5 & 0xff) << 8 | ((x + y * 3) & 0xff);
}

static struct bywash_surface_options options_of(int kind, const char *name, uint32_t width, uint32_t height)
{
	struct bywash_surface_options options = {0};
	OK(bywash_surface_options_new(width, height, &options));
	OK(bywash_surface_options_set_display(options, kind, name));
	OK(bywash_surface_options_set_title(options, "surfaces.c"));
	OK(bywash_surface_options_set_timeout(options, 10 * SECOND));
	return options;
}

static void draw(struct bywash_frame frame)
{
	struct bywash_pixels pixels;
	struct bywash_memory_range range;
	OK(bywash_frame_map(frame, &pixels));
	CHECK(pixels.row_bytes >= 4 * (size_t)pixels.width);
	CHECK(pixels.length == (pixels.height - 1) * pixels.row_bytes + 4 * (size_t)pixels.width);
	OK(bywash_frame_memory(frame, &range));
	CHECK(range.fd >= 0 && range.length == pixels.length);
	for (uint32_t y = 0; y < pixels.height; y++) {
		uint32_t *row = (uint32_t *)(pixels.bytes + y * pixels.row_bytes);
		for (uint32_t x = 0; x < pixels.width; x++)
			row[x] = pixel(x, y);
	}
}

/* Waits in poll(2), as a program with an event loop does. */
static struct bywash_frame next_frame(struct bywash_surface surface)
{
	struct bywash_frame frame = {0};
	struct pollfd wait = {.fd = -1, .events = POLLIN};
	int answer;
	OK(bywash_surface_fd(surface, &wait.fd));
	while ((answer = bywash_surface_frame(surface, 0, &frame)) == BYWASH_ERROR_TIMED_OUT)
		poll(&wait, 1, 100);
	CHECK(answer == BYWASH_OK);
	return frame;
}

int main(int count, char **arguments)
{
	struct bywash_surface_options options;
	struct bywash_surface surface = {0}, other = {0};
	struct bywash_frame frame = {0}, copy, held[3];
	struct bywash_surface_stats stats;
	struct bywash_rectangle part = {.x = 10, .y = 20, .width = 30, .height = 40};
	char line[16];
	int kind;
	CHECK(count == 3);
	kind = strcmp(arguments[1], "wayland") == 0 ? BYWASH_DISPLAY_WAYLAND : BYWASH_DISPLAY_X11;
	options = options_of(kind, arguments[2], 160, 120);
	OK(bywash_surface_open(options, &surface));

	OK(bywash_surface_frame(surface, -1, &frame));
	draw(frame);
	copy = frame;
	OK(bywash_surface_present(surface, &frame, NULL, 0));
	CHECK(frame.id == 0);
	FAILS(bywash_frame_free(&copy), BYWASH_ERROR_HANDLE, "");
	OK(bywash_surface_finish(surface));
	OK(bywash_surface_dispatch(surface));
	puts("shown");
	fflush(stdout);
	CHECK(fgets(line, sizeof line, stdin) != NULL);

	for (int number = 0; number < 20; number++) {
		frame = next_frame(surface);
		draw(frame);
		OK(bywash_surface_present(surface, &frame, &part, 1));
	}
	OK(bywash_surface_finish(surface));
	OK(bywash_surface_get_stats(surface, &stats, sizeof stats));
	CHECK(stats.presented == 21 && stats.returned >= 19 && stats.unseen <= 21);

	OK(bywash_surface_frame(surface, 2 * SECOND, &frame));
	OK(bywash_frame_free(&frame));
	OK(bywash_surface_open(options, &other));
	OK(bywash_surface_frame(other, -1, &frame));
	FAILS(bywash_surface_present(surface, &frame, NULL, 0), BYWASH_ERROR_UNFIT, "another surface");
	CHECK(frame.id == 0);
	for (int number = 0; number < 3; number++)
		OK(bywash_surface_frame(other, -1, &held[number]));
	FAILS(bywash_surface_frame(other, -1, &frame), BYWASH_ERROR_NO_ROOM, "all 3 frames are held");
	OK(bywash_surface_close(&other));
	/* A frame outlives its surface. */
	for (int number = 0; number < 3; number++) {
		draw(held[number]);
		OK(bywash_frame_free(&held[number]));
	}

	FAILS(bywash_surface_present(surface, &frame, NULL, 1), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_surface_present(surface, &frame, NULL, 0), BYWASH_ERROR_HANDLE, "");
	FAILS(bywash_surface_frame(surface, 0, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_surface_frame(NO_SURFACE, 0, &frame), BYWASH_ERROR_HANDLE, "");
	OK(bywash_surface_options_set_mode(options, 640, 480));
	FAILS(bywash_surface_open(options, &other), BYWASH_ERROR_UNFIT, "its server chooses the mode");
	OK(bywash_surface_options_free(&options));
	options = options_of(kind, "/nowhere/at/all", 160, 120);
	CHECK(bywash_surface_open(options, &other) < 0);
	OK(bywash_surface_options_set_frames(options, 17));
	FAILS(bywash_surface_open(options, &other), BYWASH_ERROR_OPTION, "the number of frames is 17");
	FAILS(bywash_surface_options_set_timeout(options, -1), BYWASH_ERROR_OPTION, "negative");
	FAILS(bywash_surface_options_set_display(options, 4, NULL), BYWASH_ERROR_ARGUMENT, "the kind of display 4");
	OK(bywash_surface_options_free(&options));
	OK(bywash_surface_close(&surface));
	return 0;
}
