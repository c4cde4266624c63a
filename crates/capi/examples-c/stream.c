/* A gibibyte goes from one process to another, in containers of 256 KiB that are filled and read where they are.
 *
 *   cc stream.c -o stream $(pkg-config --cflags --libs bywash) && ./stream [bytes]
 */
#include "example.h"

#include <string.h>

enum { PIECE = 256 << 10 };

static void produce(struct bywash_path path, size_t bytes)
{
	for (size_t done = 0; done < bytes; done += PIECE) {
		struct bywash_container container = {0};
		uint8_t *into;
		size_t length = bytes - done < PIECE ? bytes - done : PIECE;
		/* Waits here when the consumer is slower: the arena is what there can be on the way. */
		must(bywash_alloc(path, length, BYWASH_FOREVER, &container));
		must(bywash_container_map(container, &into, NULL));
		memset(into, (int)(done / PIECE), length);
		must(bywash_ship(path, &container, BYWASH_FOREVER));
	}
	must(bywash_path_close(&path));
}

static size_t consume(struct bywash_path path)
{
	struct bywash_message message = {0};
	size_t bytes = 0;
	int answer;
	while ((answer = bywash_receive(path, BYWASH_FOREVER, &message)) == BYWASH_OK) {
		const uint8_t *from;
		size_t length;
		must(bywash_map(message, 0, &from, &length));
		uint8_t expected = (uint8_t)(bytes / PIECE);
		if (from[0] != expected || memcmp(from, from + 1, length - 1) != 0) {
			fprintf(stderr, "the bytes from %zu on are not what was sent\n", bytes);
			exit(1);
		}
		bytes += length;
		must(bywash_message_free(&message));
	}
	/* Everything that was shipped comes before this. */
	if (answer != BYWASH_ERROR_CLOSED)
		must(answer);
	must(bywash_path_close(&path));
	return bytes;
}

int main(int count, char **arguments)
{
	size_t bytes = count > 1 ? strtoull(arguments[1], NULL, 10) : (size_t)1 << 30;
	/* Both ends are this program, so that each may look at what the other shipped where it is. */
	struct bywash_options options = of_class(BYWASH_CLASS_TRUSTED);
	int fds[2];
	must(bywash_socket_pair(fds));
	pid_t child = fork();
	struct bywash_path path = end_of(fds, child == 0, options);
	must(bywash_options_free(&options));
	if (child == 0) {
		produce(path, bytes);
		return 0;
	}
	double start = seconds();
	size_t received = consume(path);
	printf("%zu bytes, %.2f GB/s\n", received, (double)received / (seconds() - start) * 1e-9);
	return ended_well(child) && received == bytes ? 0 : 1;
}
