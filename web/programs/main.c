// Programs of the planner's page in one executable: the first argument selects one.
//
//     web|video|streams|database [ARGUMENTS]
//
// Each is compiled from crates/execute/programs with `main` renamed, so that all have one C library.
#include <stdio.h>
#include <string.h>

int web_main(int, char **);
int video_main(int, char **);
int streams_main(int, char **);
int database_main(int, char **);

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int (*main)(int, char **);
    } programs[] = {{"web", web_main}, {"video", video_main}, {"streams", streams_main}, {"database", database_main}};
    for (size_t number = 0; number < sizeof programs / sizeof *programs; number++) {
        if (argc > 0 && !strcmp(argv[0], programs[number].name)) return programs[number].main(argc, argv);
    }
    fprintf(stderr, "usage: web|video|streams|database [ARGUMENTS]\n");
    return 2;
}
