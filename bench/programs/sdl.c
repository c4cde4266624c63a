/* Shows frames as programs with SDL 2 do that have pixels: a streaming texture, drawn by the software renderer.
 *
 *   sdl WIDTH HEIGHT FRAMES
 *
 * Prints the seconds of processor time that drawing took. SDL is loaded at run time, so that its headers need not be there;
 * the declarations are those of SDL 2's headers. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
	INIT_VIDEO = 0x20,
	POSITION_UNDEFINED = 0x1fff0000,
	RENDERER_SOFTWARE = 1,
	TEXTURE_STREAMING = 1,
	PIXELS_XRGB8888 = 0x16161804
};

static void *library;

static void *need(const char *name)
{
	void *found = dlsym(library, name);
	if (!found) {
		fprintf(stderr, "libSDL2 has no %s\n", name);
		exit(1);
	}
	return found;
}

static double seconds(void)
{
	struct timespec time;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

int main(int count, char **arguments)
{
	if (count != 4)
		return 2;
	int width = atoi(arguments[1]), height = atoi(arguments[2]), frames = atoi(arguments[3]);
	library = dlopen("libSDL2-2.0.so.0", RTLD_NOW);
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	int (*init)(uint32_t) = (int (*)(uint32_t))need("SDL_Init");
	const char *(*error)(void) = (const char *(*)(void))need("SDL_GetError");
	void *(*create_window)(const char *, int, int, int, int, uint32_t) =
		(void *(*)(const char *, int, int, int, int, uint32_t))need("SDL_CreateWindow");
	void *(*create_renderer)(void *, int, uint32_t) = (void *(*)(void *, int, uint32_t))need("SDL_CreateRenderer");
	void *(*create_texture)(void *, uint32_t, int, int, int) =
		(void *(*)(void *, uint32_t, int, int, int))need("SDL_CreateTexture");
	int (*update)(void *, const void *, const void *, int) =
		(int (*)(void *, const void *, const void *, int))need("SDL_UpdateTexture");
	int (*copy)(void *, void *, const void *, const void *) =
		(int (*)(void *, void *, const void *, const void *))need("SDL_RenderCopy");
	void (*present)(void *) = (void (*)(void *))need("SDL_RenderPresent");
	void (*pump)(void) = (void (*)(void))need("SDL_PumpEvents");
	void *window = NULL, *renderer = NULL, *texture = NULL;
	if (init(INIT_VIDEO) != 0 ||
	    !(window = create_window("sdl", POSITION_UNDEFINED, POSITION_UNDEFINED, width, height, 0)) ||
	    !(renderer = create_renderer(window, -1, RENDERER_SOFTWARE)) ||
	    !(texture = create_texture(renderer, PIXELS_XRGB8888, TEXTURE_STREAMING, width, height))) {
		fprintf(stderr, "SDL: %s\n", error());
		return 1;
	}
	uint32_t *pixels = malloc((size_t)width * (size_t)height * 4);
	if (!pixels)
		return 1;
	double drawing = 0;
	for (int number = 0; number < frames; number++) {
		double before = seconds();
		for (int y = 0; y < height; y++)
			for (int x = 0; x < width; x++)
				pixels[y * width + x] = 0xff000000 | ((uint32_t)(number * 5 + y * 3 + x) & 0xffffff);
		drawing += seconds() - before;
		if (update(texture, NULL, pixels, width * 4) != 0 || copy(renderer, texture, NULL, NULL) != 0) {
			fprintf(stderr, "SDL: %s\n", error());
			return 1;
		}
		present(renderer);
		pump();
	}
	printf("%.9f\n", drawing);
	return 0;
}
