// Video server of "Impact of Next-Generation I/O Architectures on Network Servers" (Carrera and others): sends very large
// files in order, without a cache of its own.
//
//     video --root FOLDER [--port 8080] [--threads 16] [--request 128K] [--sendfile]
//
// GET /NAME sends a file from its first byte to its last, by one pread(2) of --request bytes after the other, each of
// which is sent before the next one is read. With --sendfile, one sendfile(2) takes the place of each read and its send, so
// that the bytes do not pass through the program. A field Range with one range of bytes selects a part.
//
// A thread serves its connection until the client closes it, so that there must be as many threads as streams. Links
// below the root may lead out of it.
//
// It runs on Linux as it is: gcc -O2 -pthread video.c
#include "http.h"
#include <sys/sendfile.h>

static int root, sends_files;
static size_t request_bytes = 128 << 10;

// Finds the bytes that a request wants of a file: sets the first one and the one behind the last. Returns 200 for a whole
// file, 206 for a part, and 416 if no byte of the file is in the range. A field that is no single range has no effect.
static int parse_range(const char *range, off_t length, off_t *first, off_t *end) {
    long long from, to;
    int used = 0;
    *first = 0;
    *end = length;
    if (sscanf(range, "bytes=-%lld%n", &to, &used) == 1 && !range[used] && to >= 0) {
        // The last bytes of the file.
        *first = to < length ? length - to : 0;
        return to == 0 || length == 0 ? 416 : 206;
    }
    if (sscanf(range, "bytes=%lld-%lld%n", &from, &to, &used) == 2 && !range[used]) {
        if (from < 0 || to < from) return 200;
        *end = to < length - 1 ? to + 1 : length;
    } else if (!(used = 0, sscanf(range, "bytes=%lld-%n", &from, &used) == 1 && used && !range[used] && from >= 0)) {
        return 200;
    }
    *first = from;
    return from < length ? 206 : 416;
}

// Sends a range of a file without a buffer of the program's own.
static int send_range_directly(int socket, int file, off_t first, off_t end) {
    while (first < end) {
        size_t wanted = (size_t)(end - first) < request_bytes ? (size_t)(end - first) : request_bytes;
        // The offset moves by what was sent.
        ssize_t sent = sendfile(socket, file, &first, wanted);
        if (sent < 0 && errno == EINTR) continue;
        // At the file's end it has become shorter, and its length is sent already.
        if (sent <= 0) return -1;
    }
    return 0;
}

static int send_range(int socket, int file, off_t first, off_t end) {
    // A buffer for each thread, for all of its requests.
    static _Thread_local char *buffer;
    posix_fadvise(file, first, end - first, POSIX_FADV_SEQUENTIAL);
    if (sends_files) return send_range_directly(socket, file, first, end);
    if (!buffer && !(buffer = malloc(request_bytes))) return -1;
    while (first < end) {
        size_t wanted = (size_t)(end - first) < request_bytes ? (size_t)(end - first) : request_bytes;
        ssize_t got = pread(file, buffer, wanted, first);
        if (got < 0 && errno == EINTR) continue;
        // At the file's end it has become shorter, and its length is sent already.
        if (got <= 0) return -1;
        first += got;
        for (char *next = buffer; got > 0;) {
            ssize_t sent = send(socket, next, got, MSG_NOSIGNAL);
            if (sent < 0 && errno == EINTR) continue;
            if (sent < 0) return -1;
            next += sent;
            got -= sent;
        }
    }
    return 0;
}

static int respond(struct connection *connection, struct request *request) {
    struct stat status;
    int file = openat(root, request->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0 || fstat(file, &status) || !S_ISREG(status.st_mode)) {
        if (file >= 0) close(file);
        return send_error(connection, request, 404);
    }
    off_t first, end;
    int code = parse_range(request->range, status.st_size, &first, &end), ended;
    char head[400], part[100] = "";
    if (code == 206) snprintf(part, sizeof part, "Content-Range: bytes %lld-%lld/%lld\r\n", (long long)first,
                              (long long)end - 1, (long long)status.st_size);
    if (code == 416) {
        snprintf(part, sizeof part, "Content-Range: bytes */%lld\r\n", (long long)status.st_size);
        ended = send_text(connection, request, code, part, "416 Range Not Satisfiable\n");
    } else {
        int length = snprintf(head, sizeof head, "HTTP/1.1 %d %s\r\nContent-Type: video/mp4\r\nAccept-Ranges: bytes\r\n"
                              "%sContent-Length: %lld\r\n%s", code, reason(code), part, (long long)(end - first),
                              connection_field(request));
        struct iovec parts[1] = {{head, length}};
        ended = send_parts(connection->socket, parts, 1);
        if (!ended && !request->is_head) ended = send_range(connection->socket, file, first, end);
    }
    close(file);
    return ended;
}

int main(int argc, char **argv) {
    static const struct option options[] = {
        {"port", required_argument, NULL, 'p'},
        {"root", required_argument, NULL, 'r'},
        {"threads", required_argument, NULL, 't'},
        {"request", required_argument, NULL, 'q'},
        {"sendfile", no_argument, NULL, 's'},
        {0},
    };
    int port = 8080, threads = 16, option;
    const char *folder = NULL;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 'p': port = parse_number("port", optarg, 0, 65535); break;
        case 'r': folder = optarg; break;
        case 't': threads = parse_number("threads", optarg, 1, 10000); break;
        case 'q': request_bytes = parse_bytes("request", optarg); break;
        case 's': sends_files = 1; break;
        default: return 2;
        }
    }
    if (!folder || optind < argc || request_bytes == 0) {
        fprintf(stderr, "usage: %s --root FOLDER [--port 8080] [--threads 16] [--request 128K] [--sendfile]\n", argv[0]);
        return 2;
    }
    root = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0) fail(folder);
    serve(port, threads, respond);
    return 0;
}
