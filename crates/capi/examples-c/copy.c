/* Copies a file, shows how far it is, and tells its hash. What is copied to may be any endpoint: another file, a
 * socket ("tcp:example.org:9000"), a device.
 *
 *   cc copy.c -o copy $(pkg-config --cflags --libs bywash) && ./copy FROM TO [STAGE]...
 */
#include "example.h"

#include <inttypes.h>
#include <string.h>

static void print(struct bywash_text text)
{
	const char *characters;
	must(bywash_text_get(text, &characters, NULL));
	fputs(characters, stdout);
	must(bywash_text_free(&text));
}

static void show_progress(struct bywash_running running)
{
	uint64_t moved, total;
	must(bywash_running_moved(running, &moved));
	must(bywash_running_total(running, &total));
	if (total == BYWASH_UNKNOWN)
		fprintf(stderr, "\r%" PRIu64 " bytes", moved);
	else
		fprintf(stderr, "\r%" PRIu64 " of %" PRIu64 " bytes", moved, total);
}

int main(int count, char **arguments)
{
	static const int64_t TENTH = 100000000;
	struct bywash_flow flow = {0};
	struct bywash_running running = {0};
	struct bywash_text text = {0};
	struct bywash_report report;
	int answer;
	if (count < 3) {
		fprintf(stderr, "usage: copy FROM TO [STAGE]...\n");
		return 2;
	}
	must(bywash_flow_new(arguments[1], arguments[2], &flow));
	for (int number = 3; number < count; number++)
		must(bywash_flow_stage(flow, arguments[number]));
	/* Which way the bytes will go on this machine, and why no other. */
	must(bywash_flow_explain(flow, &text));
	print(text);
	must(bywash_flow_start(flow, &running));
	must(bywash_flow_free(&flow));
	while ((answer = bywash_running_wait(running, TENTH, &report, sizeof report)) == BYWASH_ERROR_TIMED_OUT)
		show_progress(running);
	show_progress(running);
	fputs("\n", stderr);
	/* Should it have failed, there is no file of that name now, but for one that was there before. */
	must(answer);
	printf("%" PRIu64 " bytes in %.3f s, %.3f s of a processor\n", report.bytes, report.seconds,
	       report.cpu_seconds);
	must(bywash_running_report(running, &text));
	print(text);
	must(bywash_running_free(&running));
	return 0;
}
