/* What the examples have in common: an error ends the program, and two processes with a path between them. */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include <bywash.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static inline void must(int answer)
{
	if (answer != BYWASH_OK) {
		fprintf(stderr, "%s\n", bywash_last_error_message());
		exit(1);
	}
}

/* Options of a class, and defaults for the rest. */
static inline struct bywash_options of_class(int class_)
{
	struct bywash_options options = {0};
	must(bywash_options_new(&options));
	must(bywash_options_set_class(options, class_));
	return options;
}

/* One end, in the process that will use it; the other process's descriptor is closed here. */
static inline struct bywash_path end_of(int fds[2], int mine, struct bywash_options options)
{
	struct bywash_path path = {0};
	close(fds[1 - mine]);
	must(bywash_path_over(fds[mine], options, &path));
	return path;
}

static inline double seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static inline int ended_well(pid_t child)
{
	int status = 0;
	return waitpid(child, &status, 0) == child && status == 0;
}

#endif
