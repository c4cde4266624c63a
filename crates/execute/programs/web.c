// Web server of "Impact of Next-Generation I/O Architectures on Network Servers" (Carrera and others): a pool of threads,
// of which each takes a connection and serves it, and a cache of files in the server's own memory.
//
//     web --root FOLDER [--port 8080] [--threads 16] [--cache 64M]
//
// A file that is cached goes out from memory, by one writev(2) of head and body. A miss reads the whole file by pread(2)
// and takes the place of the files that were used least recently. A file that needs more than a quarter of the cache is
// sent in pieces and not cached; with --cache 0 that is every file. Cached files are not looked at again: files below
// the root must not change while the server runs.
//
// A thread serves its connection until the client closes it, so that persistent connections need as many threads.
// GET /server-status tells what was counted. Links below the root may lead out of it.
//
// It runs on Linux as it is: gcc -O2 -pthread web.c
#include "http.h"

enum {
    BUCKETS = 4096,      // of the cache's hash table
    PIECE = 64 << 10,    // of a file that is not cached, in bytes
    CACHE_PART = 4,      // a file in the cache needs at most one of so many parts of it
};

// File in memory.
struct entry {
    struct entry *next;            // in the same bucket
    struct entry *newer, *older;   // in the order of use
    char *path;
    char *body;
    size_t length;
    char head[120];                // status line and fields, up to the one of the connection
    size_t head_length;
    int users;                     // threads that send it
    int is_cached;                 // otherwise its last user frees it
};

static struct {
    pthread_mutex_t lock;
    struct entry *buckets[BUCKETS];
    struct entry *newest, *oldest;
    size_t bytes, limit;
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER};

static atomic_ulong responses, hits, misses, errors;
static int root;

// Returns the bucket of a path (FNV-1a).
static struct entry **bucket_of(const char *path) {
    unsigned hash = 2166136261u;
    for (; *path; path++) hash = (hash ^ (unsigned char)*path) * 16777619u;
    return &cache.buckets[hash % BUCKETS];
}

// Takes an entry out of the order of use.
static void unlink_entry(struct entry *entry) {
    *(entry->newer ? &entry->newer->older : &cache.newest) = entry->older;
    *(entry->older ? &entry->older->newer : &cache.oldest) = entry->newer;
}

// Makes an entry the most recently used one.
static void link_newest(struct entry *entry) {
    entry->newer = NULL;
    entry->older = cache.newest;
    *(cache.newest ? &cache.newest->newer : &cache.oldest) = entry;
    cache.newest = entry;
}

static void free_entry(struct entry *entry) {
    free(entry->path);
    free(entry->body);
    free(entry);
}

// Finds a cached file, and counts the caller as its user; the lock is taken.
static struct entry *look_up(const char *path) {
    struct entry *entry = *bucket_of(path);
    while (entry && strcmp(entry->path, path)) entry = entry->next;
    if (entry) {
        unlink_entry(entry);
        link_newest(entry);
        entry->users++;
    }
    return entry;
}

// Removes the file that was used least recently; the lock is taken.
static void evict_oldest(void) {
    struct entry *entry = cache.oldest, **link = bucket_of(entry->path);
    while (*link != entry) link = &(*link)->next;
    *link = entry->next;
    unlink_entry(entry);
    cache.bytes -= entry->length;
    entry->is_cached = 0;
    if (entry->users == 0) free_entry(entry);
}

static struct entry *find(const char *path) {
    pthread_mutex_lock(&cache.lock);
    struct entry *entry = look_up(path);
    pthread_mutex_unlock(&cache.lock);
    return entry;
}

// Adds a file that was read, unless another thread has done so meanwhile; returns the cached one.
static struct entry *insert(struct entry *entry) {
    pthread_mutex_lock(&cache.lock);
    struct entry *other = look_up(entry->path);
    if (other) {
        free_entry(entry);
        entry = other;
    } else {
        while (cache.oldest && cache.bytes + entry->length > cache.limit) evict_oldest();
        struct entry **bucket = bucket_of(entry->path);
        entry->next = *bucket;
        *bucket = entry;
        link_newest(entry);
        cache.bytes += entry->length;
        entry->is_cached = 1;
        entry->users = 1;
    }
    pthread_mutex_unlock(&cache.lock);
    return entry;
}

static void release(struct entry *entry) {
    pthread_mutex_lock(&cache.lock);
    int is_last = --entry->users == 0 && !entry->is_cached;
    pthread_mutex_unlock(&cache.lock);
    if (is_last) free_entry(entry);
}

// Writes the head of a file's response, up to the field of the connection, and returns its length.
static size_t write_head(char *head, size_t room, size_t length) {
    const char *form = "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: %zu\r\n";
    return snprintf(head, room, form, length);
}

// Reads as many bytes as a buffer has room for; returns fewer only at the file's end, and -1 if it cannot be read.
static ssize_t read_fully(int file, char *bytes, size_t length, off_t offset) {
    size_t done = 0;
    while (done < length) {
        ssize_t got = pread(file, bytes + done, length - done, offset + done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -1;
        if (got == 0) break;
        done += got;
    }
    return done;
}

// Reads a file into memory; returns nothing if that fails.
static struct entry *load(const char *path, int file, size_t length) {
    struct entry *entry = calloc(1, sizeof *entry);
    if (!entry) return NULL;
    entry->path = strdup(path);
    entry->body = malloc(length ? length : 1);
    ssize_t got = entry->path && entry->body ? read_fully(file, entry->body, length, 0) : -1;
    if (got < 0) {
        free_entry(entry);
        return NULL;
    }
    entry->length = got;
    entry->head_length = write_head(entry->head, sizeof entry->head, entry->length);
    return entry;
}

static int send_entry(struct connection *connection, struct request *request, struct entry *entry) {
    const char *last = connection_field(request);
    struct iovec parts[3] = {{entry->head, entry->head_length}, {(char *)last, strlen(last)}, {entry->body, entry->length}};
    int ended = send_parts(connection->socket, parts, request->is_head ? 2 : 3);
    release(entry);
    return ended;
}

// Sends a file piece by piece.
static int send_file(struct connection *connection, struct request *request, int file, size_t length) {
    char head[120], *piece = malloc(PIECE);
    const char *last = connection_field(request);
    if (!piece) return -1;
    struct iovec parts[3] = {{head, write_head(head, sizeof head, length)}, {(char *)last, strlen(last)}};
    // The head goes out with the first piece.
    int count = 2, ended = 0;
    for (size_t sent = 0; !ended && !request->is_head && sent < length; count = 0) {
        ssize_t got = read_fully(file, piece, length - sent < PIECE ? length - sent : PIECE, sent);
        if (got <= 0) ended = -1; // it has become shorter, and its length is sent already
        else {
            parts[count++] = (struct iovec){piece, got};
            ended = send_parts(connection->socket, parts, count);
            sent += got;
        }
    }
    if (!ended && count == 2) ended = send_parts(connection->socket, parts, 2);
    free(piece);
    return ended;
}

static int send_status(struct connection *connection, struct request *request) {
    char text[200];
    pthread_mutex_lock(&cache.lock);
    size_t bytes = cache.bytes;
    pthread_mutex_unlock(&cache.lock);
    snprintf(text, sizeof text, "responses %lu\nhits %lu\nmisses %lu\nerrors %lu\ncached bytes %zu\n", responses, hits,
             misses, errors, bytes);
    return send_text(connection, request, 200, "", text);
}

static int respond(struct connection *connection, struct request *request) {
    if (!strcmp(request->path, "server-status")) return send_status(connection, request);
    responses++;
    struct entry *entry = find(request->path);
    if (entry) {
        hits++;
        return send_entry(connection, request, entry);
    }
    struct stat status;
    int file = openat(root, request->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0 || fstat(file, &status) || !S_ISREG(status.st_mode)) {
        if (file >= 0) close(file);
        errors++;
        return send_error(connection, request, 404);
    }
    misses++;
    int ended;
    if ((size_t)status.st_size > cache.limit / CACHE_PART || cache.limit == 0) {
        ended = send_file(connection, request, file, status.st_size);
    } else {
        entry = load(request->path, file, status.st_size);
        ended = entry ? send_entry(connection, request, insert(entry)) : send_error(connection, request, 500);
    }
    close(file);
    return ended;
}

int main(int argc, char **argv) {
    static const struct option options[] = {
        {"port", required_argument, NULL, 'p'},
        {"root", required_argument, NULL, 'r'},
        {"threads", required_argument, NULL, 't'},
        {"cache", required_argument, NULL, 'c'},
        {0},
    };
    int port = 8080, threads = 16, option;
    const char *folder = NULL;
    cache.limit = 64 << 20;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 'p': port = parse_number("port", optarg, 0, 65535); break;
        case 'r': folder = optarg; break;
        case 't': threads = parse_number("threads", optarg, 1, 10000); break;
        case 'c': cache.limit = parse_bytes("cache", optarg); break;
        default: return 2;
        }
    }
    if (!folder || optind < argc) {
        fprintf(stderr, "usage: %s --root FOLDER [--port 8080] [--threads 16] [--cache 64M]\n", argv[0]);
        return 2;
    }
    root = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0) fail(folder);
    serve(port, threads, respond);
    return 0;
}
