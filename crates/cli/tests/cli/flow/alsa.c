/* Stands in for ALSA's library where a test needs a device with a clock, or with a fault: its name says which.
 *
 * A device plays or records by the clock of the machine. What it has played is appended to the file `played`; what it
 * records is the number of each frame, in the low bytes of each channel. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct pcm {
    const char *name;
    int capture, running, nonblock, resumed;
    unsigned frame, channels, rate;
    unsigned long buffer, period;
    /* Frames handed over, and frames that had been handed over or lost when the device began. */
    long moved, begin;
    double since;
    FILE *played;
};

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static int is(const struct pcm *pcm, const char *name) { return strcmp(pcm->name, name) == 0; }

/* Frames that the clock has passed. */
static long passed(const struct pcm *pcm) {
    double rate = is(pcm, "lazy") ? pcm->rate / 2.0 : pcm->rate;
    return pcm->begin + (pcm->running ? (long)((now() - pcm->since) * rate) : 0);
}

/* Frames in the buffer; those that a recording has lost count, too. */
static long filled(const struct pcm *pcm) {
    if (is(pcm, "stuck")) return pcm->moved;
    return pcm->capture ? passed(pcm) - pcm->moved : pcm->moved - passed(pcm);
}

int snd_pcm_open(struct pcm **pcm, const char *name, int capture, int mode) {
    if (strcmp(name, "busy") == 0) return -EBUSY;
    if (strcmp(name, "slow") == 0) for (;;) pause();
    *pcm = calloc(1, sizeof **pcm);
    (*pcm)->name = strdup(name);
    (*pcm)->capture = capture;
    (*pcm)->nonblock = mode;
    return mode == 1 ? 0 : -EINVAL;
}

int snd_pcm_set_params(struct pcm *pcm, int format, int access, unsigned channels, unsigned rate, int resample, unsigned latency) {
    if (access != 3 || resample != 1 || is(pcm, "narrow") || is(pcm, "coarse")) return -EINVAL;
    pcm->frame = channels * (format == 2 ? 2 : format == 32 ? 3 : 4);
    pcm->channels = channels;
    pcm->rate = rate;
    pcm->buffer = (unsigned long)(latency * (double)rate / 1e6);
    pcm->period = pcm->buffer / 4;
    if (!pcm->capture) pcm->played = fopen("played", "w");
    return 0;
}

int snd_pcm_get_params(struct pcm *pcm, unsigned long *buffer, unsigned long *period) {
    *buffer = pcm->buffer;
    *period = pcm->period;
    return 0;
}

int snd_pcm_start(struct pcm *pcm) {
    pcm->begin = passed(pcm);
    pcm->since = now();
    pcm->running = 1;
    return 0;
}

int snd_pcm_prepare(struct pcm *pcm) {
    if (pcm->capture) pcm->moved = passed(pcm);
    pcm->begin = pcm->moved;
    pcm->running = 0;
    return 0;
}

int snd_pcm_nonblock(struct pcm *pcm, int mode) { pcm->nonblock = mode; return 0; }
/* The first call is too early, and the second one says that the device has forgotten everything. */
int snd_pcm_resume(struct pcm *pcm) { return pcm->resumed++ ? -ENOSYS : -EAGAIN; }
int snd_pcm_delay(struct pcm *pcm, long *frames) { *frames = filled(pcm); return 0; }

long snd_pcm_writei(struct pcm *pcm, const void *bytes, unsigned long frames) {
    long room = (long)pcm->buffer - filled(pcm);
    if (is(pcm, "unplugged") && pcm->moved >= (long)pcm->buffer) return -ENODEV;
    if (is(pcm, "sleepy") && pcm->moved > 0 && pcm->resumed < 2) return -ESTRPIPE;
    if (pcm->running && room > (long)pcm->buffer) return -EPIPE;
    if (room == 0 || (pcm->running && room < (long)pcm->period && room < (long)frames)) return -EAGAIN;
    if (room > (long)frames) room = frames;
    fwrite(bytes, pcm->frame, room, pcm->played);
    fflush(pcm->played);
    pcm->moved += room;
    if (!pcm->running && filled(pcm) >= (long)(pcm->buffer / pcm->period * pcm->period)) snd_pcm_start(pcm);
    return room;
}

long snd_pcm_readi(struct pcm *pcm, void *bytes, unsigned long frames) {
    long there = filled(pcm);
    if (there > (long)pcm->buffer) return -EPIPE;
    if (there == 0 || (there < (long)pcm->period && there < (long)frames)) return -EAGAIN;
    if (there > (long)frames) there = frames;
    unsigned char *to = memset(bytes, 0, there * pcm->frame);
    for (long frame = 0; frame < there; frame++, pcm->moved++)
        for (unsigned channel = 0; channel < pcm->channels; channel++, to += pcm->frame / pcm->channels) {
            to[0] = pcm->moved;
            to[1] = pcm->moved >> 8;
        }
    return there;
}

int snd_pcm_drain(struct pcm *pcm) {
    if (pcm->nonblock) return -EAGAIN;
    if (!pcm->running) snd_pcm_start(pcm);
    while (is(pcm, "stuck") || is(pcm, "deaf") || filled(pcm) > 0) usleep(1000);
    return 0;
}

int snd_pcm_close(struct pcm *pcm) {
    if (pcm->played) {
        fprintf(pcm->played, "end");
        fclose(pcm->played);
    }
    return 0;
}

int snd_pcm_hw_params_malloc(void **all) { *all = NULL; return 0; }
void snd_pcm_hw_params_free(void *all) { (void)all; }
int snd_pcm_hw_params_any(struct pcm *pcm, void **all) { (void)pcm; (void)all; return 0; }
int snd_pcm_hw_params_test_access(struct pcm *pcm, void *all, int access) { (void)pcm; (void)all; return access == 3 ? 0 : -1; }
int snd_pcm_hw_params_test_format(struct pcm *pcm, void *all, int format) {
    (void)all;
    return is(pcm, "coarse") && format != 2 ? -EINVAL : 0;
}
int snd_pcm_hw_params_test_channels(struct pcm *pcm, void *all, unsigned channels) {
    (void)pcm;
    (void)all;
    return channels > 2 ? -EINVAL : 0;
}
int snd_pcm_hw_params_test_rate(struct pcm *pcm, void *all, unsigned rate, int side) {
    (void)pcm;
    (void)all;
    return side != 0 || rate > 44100 ? -EINVAL : 0;
}
int snd_pcm_hw_params_get_channels_min(void *all, unsigned *value) { (void)all; *value = 1; return 0; }
int snd_pcm_hw_params_get_channels_max(void *all, unsigned *value) { (void)all; *value = 2; return 0; }
int snd_pcm_hw_params_get_rate_min(void *all, unsigned *value, int *side) { (void)all; (void)side; *value = 8000; return 0; }
int snd_pcm_hw_params_get_rate_max(void *all, unsigned *value, int *side) { (void)all; (void)side; *value = 44100; return 0; }
