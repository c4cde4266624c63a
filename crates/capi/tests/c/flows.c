/* Flows: planned, started, watched, waited for, cancelled; and what goes wrong. */
#include "check.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 600000 };

static char here[4096], there[4096], elsewhere[4096];

/* The names of the files of this test, in the folder that was given. */
static void name_files(const char *folder)
{
	snprintf(here, sizeof here, "%s/here", folder);
	snprintf(there, sizeof there, "%s/there", folder);
	snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", folder);
}

static void write_file(const char *name, size_t size)
{
	FILE *file = fopen(name, "wb");
	CHECK(file != NULL);
	for (size_t at = 0; at < size; at++)
		CHECK(fputc(byte_at(at, at >> 8), file) != EOF);
	CHECK(fclose(file) == 0);
}

static void same_files(const char *one, const char *other)
{
	FILE *first = fopen(one, "rb"), *second = fopen(other, "rb");
	int byte;
	CHECK(first != NULL && second != NULL);
	do {
		byte = fgetc(first);
		CHECK(byte == fgetc(second));
	} while (byte != EOF);
	fclose(first);
	fclose(second);
}

/* The text has this in it; it is freed. */
static void says(struct bywash_text text, const char *part)
{
	const char *characters = NULL;
	size_t length = 0;
	OK(bywash_text_get(text, &characters, &length));
	CHECK(strlen(characters) == length);
	if (strstr(characters, part) == NULL) {
		fprintf(stderr, "not '%s', but: %s\n", part, characters);
		exit(1);
	}
	OK(bywash_text_free(&text));
	CHECK(text.id == 0);
}

static struct bywash_flow flow_of(const char *source, const char *sink)
{
	struct bywash_flow flow = {0};
	OK(bywash_flow_new(source, sink, &flow));
	return flow;
}

/* Starts it and frees what it was started with. */
static struct bywash_running started(struct bywash_flow flow)
{
	struct bywash_running running = {0};
	OK(bywash_flow_start(flow, &running));
	OK(bywash_flow_free(&flow));
	CHECK(flow.id == 0);
	return running;
}

static void a_copy_and_all_that_it_says(void)
{
	struct bywash_text text = {0};
	struct bywash_report report;
	const char *characters = NULL;
	uint64_t bytes = 0;
	struct bywash_flow flow = flow_of(here, there);
	OK(bywash_flow_stage(flow, "hash:sha256"));
	OK(bywash_flow_by_reference(flow, 0));
	OK(bywash_flow_block(flow, 64 << 10));
	OK(bywash_flow_sync(flow, 1));
	OK(bywash_flow_one_way(flow, 1));
	OK(bywash_flow_finds_rate(flow, 0));
	OK(bywash_flow_plan(flow, &text));
	says(text, "\"mover\": \"buffer\"");
	OK(bywash_flow_explain(flow, &text));
	says(text, "  block  64 KiB\n  data   by value, ordered, lossless, durable in the end\n");
	CHECK(access(there, F_OK) != 0);

	struct bywash_running running = started(flow);
	OK(bywash_running_wait(running, BYWASH_FOREVER, &report, sizeof report));
	CHECK(report.bytes == SIZE && report.holes == 0 && report.whole == 1 && report.pieces == 1);
	CHECK(report.seconds > 0 && report.cpu_seconds > 0 && report.cpu_seconds < 60);
	same_files(here, there);
	OK(bywash_running_moved(running, &bytes));
	CHECK(bytes == SIZE);
	OK(bywash_running_total(running, &bytes));
	CHECK(bytes == SIZE);
	OK(bywash_running_notices(running, &text));
	OK(bywash_text_get(text, &characters, NULL));
	CHECK(strcmp(characters, "") == 0);
	OK(bywash_text_free(&text));
	OK(bywash_running_report(running, &text));
	says(text, "\"algorithm\": \"sha256\"");
	OK(bywash_running_report(running, &text));
	says(text, "\"error\": null");

	/* As often as one asks, with what the program knows of the report, and by who is told nothing more. */
	struct {
		struct bywash_report known;
		uint64_t newer;
	} later = {.newer = 4711};
	OK(bywash_running_wait(running, 0, &later.known, sizeof later));
	CHECK(later.known.bytes == SIZE && later.newer == 0);
	report.holes = 4711;
	OK(bywash_running_wait(running, 0, &report, sizeof report.bytes));
	CHECK(report.bytes == SIZE && report.holes == 4711);
	OK(bywash_running_wait(running, 0, NULL, 0));
	/* That it is cancelled now changes nothing any more. */
	OK(bywash_running_cancel(running));
	OK(bywash_running_wait(running, 0, NULL, 0));
	OK(bywash_running_free(&running));
	OK(bywash_running_free(&running));
	CHECK(unlink(there) == 0);
}

static void one_flow_started_twice(void)
{
	struct bywash_flow flow = flow_of(here, there);
	OK(bywash_flow_stage(flow, "compress:zstd"));
	for (int round = 0; round < 2; round++) {
		struct bywash_running running = {0};
		OK(bywash_flow_start(flow, &running));
		OK(bywash_running_wait(running, 60 * SECOND, NULL, 0));
		OK(bywash_running_free(&running));
	}
	OK(bywash_flow_free(&flow));
	flow = flow_of(there, elsewhere);
	OK(bywash_flow_stage(flow, "decompress:"));
	struct bywash_running running = started(flow);
	OK(bywash_running_wait(running, 60 * SECOND, NULL, 0));
	OK(bywash_running_free(&running));
	same_files(here, elsewhere);
	CHECK(unlink(there) == 0 && unlink(elsewhere) == 0);
}

static void *wait_for_the_end(void *argument)
{
	struct bywash_running *running = argument;
	FAILS(bywash_running_wait(*running, BYWASH_FOREVER, NULL, 0), BYWASH_ERROR_CANCELLED, "cancelled");
	return NULL;
}

/* A flow from a pipe into which nobody writes. */
static void a_flow_that_waits(void)
{
	struct bywash_report report = {.bytes = 4711};
	struct bywash_text text = {0};
	uint64_t bytes = 0;
	int fd = -1;
	pthread_t thread;
	CHECK(mkfifo(elsewhere, 0600) == 0);
	int writer = open(elsewhere, O_RDWR);
	CHECK(writer >= 0);
	struct bywash_running running = started(flow_of(elsewhere, there));
	FAILS(bywash_running_wait(running, 0, &report, sizeof report), BYWASH_ERROR_TIMED_OUT, "not at once");
	FAILS(bywash_running_wait(running, SECOND / 20, &report, sizeof report), BYWASH_ERROR_TIMED_OUT,
	      "before the timeout");
	FAILS(bywash_running_report(running, &text), BYWASH_ERROR_TIMED_OUT, "not at once");
	CHECK(report.bytes == 4711 && text.id == 0);
	OK(bywash_running_total(running, &bytes));
	CHECK(bytes == BYWASH_UNKNOWN);
	OK(bywash_running_moved(running, &bytes));
	CHECK(bytes == 0);
	OK(bywash_running_fd(running, &fd));
	struct pollfd over = {.fd = fd, .events = POLLIN};
	CHECK(poll(&over, 1, 0) == 0);

	/* Another thread waits for it while this one ends it. */
	CHECK(pthread_create(&thread, NULL, wait_for_the_end, &running) == 0);
	OK(bywash_running_cancel(running));
	CHECK(poll(&over, 1, 10000) == 1 && over.revents == POLLIN);
	FAILS(bywash_running_wait(running, 10 * SECOND, &report, sizeof report), BYWASH_ERROR_CANCELLED, "cancelled");
	CHECK(report.bytes == 0 && report.whole == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	OK(bywash_running_report(running, &text));
	says(text, "\"error\": \"the flow was cancelled\"");
	OK(bywash_running_free(&running));
	CHECK(access(there, F_OK) != 0);
	close(writer);
	CHECK(unlink(elsewhere) == 0);
}

static void what_the_data_is_not(void)
{
	struct bywash_report report;
	struct bywash_flow flow = flow_of(here, there);
	OK(bywash_flow_stage(flow, "hash:sha256,expect="
			     "0000000000000000000000000000000000000000000000000000000000000000"));
	struct bywash_running running = started(flow);
	FAILS(bywash_running_wait(running, BYWASH_FOREVER, &report, sizeof report), BYWASH_ERROR_DATA, "sha256");
	CHECK(report.bytes == SIZE && report.whole == 0 && access(there, F_OK) != 0);
	OK(bywash_running_free(&running));

	flow = flow_of(here, "null:");
	OK(bywash_flow_stage(flow, "exec:cat >/dev/null; exit 3"));
	running = started(flow);
	FAILS(bywash_running_wait(running, BYWASH_FOREVER, NULL, 0), BYWASH_ERROR_PROGRAM, "3");
	OK(bywash_running_free(&running));

	/* Nobody listens there. */
	char nobody[sizeof elsewhere + 8];
	snprintf(nobody, sizeof nobody, "unix:%s", elsewhere);
	running = started(flow_of(here, nobody));
	FAILS(bywash_running_wait(running, BYWASH_FOREVER, NULL, 0), BYWASH_ERROR_IO, elsewhere);
	CHECK(bywash_last_error_number() == 2);
	OK(bywash_running_free(&running));
}

static void what_cannot_be(void)
{
	struct bywash_flow flow = {0}, dead;
	struct bywash_running running = {0};
	struct bywash_text text = {0};
	const char *characters = NULL;
	uint64_t bytes = 0;
	FAILS(bywash_flow_new("tpc:x:1", "null:", &flow), BYWASH_ERROR_OPTION, "there is no endpoint of the kind 'tpc'");
	FAILS(bywash_flow_new("null:", "tcp:x", &flow), BYWASH_ERROR_OPTION, "a port is missing");
	FAILS(bywash_flow_new("/\xff", "null:", &flow), BYWASH_ERROR_OPTION, "not UTF-8");
	FAILS(bywash_flow_new(NULL, "null:", &flow), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_flow_new("zero:", NULL, &flow), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_flow_new("zero:", "null:", NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_flow_free(NULL), BYWASH_ERROR_ARGUMENT, "null");
	CHECK(flow.id == 0);
	FAILS(bywash_flow_stage(flow, "hash:sha256"), BYWASH_ERROR_HANDLE, "handle");
	FAILS(bywash_flow_start(flow, &running), BYWASH_ERROR_HANDLE, "");

	flow = flow_of("/nowhere/at/all", "null:");
	FAILS(bywash_flow_stage(flow, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_flow_stage(flow, "hash:md5"), BYWASH_ERROR_OPTION, "no hash 'md5'");
	FAILS(bywash_flow_via(flow, "magic"), BYWASH_ERROR_OPTION, "no mover 'magic'");
	FAILS(bywash_flow_plan(flow, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_flow_explain(flow, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_flow_start(flow, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_flow_plan(flow, &text), BYWASH_ERROR_IO, "/nowhere/at/all");
	FAILS(bywash_flow_start(flow, &running), BYWASH_ERROR_IO, "/nowhere/at/all");
	CHECK(bywash_last_error_number() == 2);
	OK(bywash_flow_free(&flow));

	flow = flow_of("zero:", "null:");
	OK(bywash_flow_block(flow, 1));
	FAILS(bywash_flow_explain(flow, &text), BYWASH_ERROR_OPTION, "512 B");
	OK(bywash_flow_block(flow, 4096));
	OK(bywash_flow_via(flow, "reflink"));
	FAILS(bywash_flow_start(flow, &running), BYWASH_ERROR_UNFIT, "reflink");
	dead = flow;
	OK(bywash_flow_free(&flow));
	OK(bywash_flow_free(&flow));
	FAILS(bywash_flow_free(&dead), BYWASH_ERROR_HANDLE, "freed");
	FAILS(bywash_flow_via(dead, "buffer"), BYWASH_ERROR_HANDLE, "");

	FAILS(bywash_running_moved(running, &bytes), BYWASH_ERROR_HANDLE, "");
	FAILS(bywash_running_cancel(running), BYWASH_ERROR_HANDLE, "");
	FAILS(bywash_running_wait(running, 0, NULL, 0), BYWASH_ERROR_HANDLE, "");
	FAILS(bywash_running_free(NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_text_get(text, &characters, NULL), BYWASH_ERROR_HANDLE, "");
	FAILS(bywash_text_get(text, NULL, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_text_free(NULL), BYWASH_ERROR_ARGUMENT, "null");
	running = started(flow_of("zero:", "null:"));
	FAILS(bywash_running_moved(running, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_running_total(running, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_running_fd(running, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_running_report(running, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_running_notices(running, NULL), BYWASH_ERROR_ARGUMENT, "null");
	OK(bywash_running_cancel(running));
	FAILS(bywash_running_wait(running, BYWASH_FOREVER, NULL, 0), BYWASH_ERROR_CANCELLED, "");
	OK(bywash_running_free(&running));
}

/* A forked child has no part in a flow of its parent's. */
static void in_a_forked_child(void)
{
	struct bywash_flow flow = flow_of(here, "null:");
	struct bywash_running running = {0};
	int status = -1, fd = -1;
	OK(bywash_flow_start(flow, &running));
	OK(bywash_running_fd(running, &fd));
	struct pollfd over = {.fd = fd, .events = POLLIN};
	CHECK(poll(&over, 1, 60000) == 1);
	pid_t child = fork();
	if (child == 0) {
		FAILS(bywash_running_wait(running, BYWASH_FOREVER, NULL, 0), BYWASH_ERROR_FORKED, "forked");
		FAILS(bywash_running_cancel(running), BYWASH_ERROR_FORKED, "");
		OK(bywash_running_free(&running));
		/* Who looks for leaks would find what the parent's thread had. */
		raise(SIGKILL);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	OK(bywash_running_wait(running, BYWASH_FOREVER, NULL, 0));
	OK(bywash_running_free(&running));
	OK(bywash_flow_free(&flow));
}

int main(int count, char **arguments)
{
	CHECK(count == 2);
	name_files(arguments[1]);
	write_file(here, SIZE);
	a_copy_and_all_that_it_says();
	one_flow_started_twice();
	a_flow_that_waits();
	in_a_forked_child();
	what_the_data_is_not();
	what_cannot_be();
	return 0;
}
