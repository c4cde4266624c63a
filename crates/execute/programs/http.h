// HTTP/1.1 for the servers of this folder: a listening socket, a pool of threads, requests and the heads of responses.
//
// Served are GET and HEAD without a body, with persistent connections and pipelining (RFC 9110, RFC 9112). What else is
// requested gets the status that the specification has for it, and the connection is closed.
//
// There are no time limits: a client that sends nothing keeps its thread. These servers are for measurements.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    HEAD_LIMIT = 8192,    // longest head of a request, in bytes; longer ones get 414 or 431
    TARGET_LIMIT = 2048,  // longest target of a request, in bytes; longer ones get 414
    BACKLOG = 4096,       // connections that wait for a thread
};

// Connection, with what was received and not used.
struct connection {
    int socket;
    size_t length;
    char bytes[HEAD_LIMIT + 1];
};

// Request, as its head says.
struct request {
    int is_head;                  // HEAD instead of GET: the response has no body
    int keeps_open;               // the connection stays open after the response
    char path[TARGET_LIMIT + 16]; // decoded path below the root, without '.' and '..', not beginning with '/'
    char range[64];               // value of the field Range; empty if there is none
};

// Ends the program with a message.
static void fail(const char *what) {
    perror(what);
    exit(1);
}

// Reads a number of bytes, with a suffix K, M or G; ends the program if it is none.
static unsigned long parse_bytes(const char *option, const char *text) {
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    if (end == text || *text == '-' || errno || end[shift > 0] || value > (~0UL >> 1) >> shift) {
        fprintf(stderr, "--%s needs a number of bytes such as 4096, 16K or 1G, not '%s'\n", option, text);
        exit(2);
    }
    return value << shift;
}

// Reads a number between two others; ends the program if it is none.
static long parse_number(const char *option, const char *text, long least, long greatest) {
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (end == text || *end || errno || value < least || value > greatest) {
        fprintf(stderr, "--%s needs a number from %ld to %ld, not '%s'\n", option, least, greatest, text);
        exit(2);
    }
    return value;
}

static const char *reason(int status) {
    switch (status) {
    case 200: return "OK";
    case 206: return "Partial Content";
    case 400: return "Bad Request";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 414: return "URI Too Long";
    case 416: return "Range Not Satisfiable";
    case 431: return "Request Header Fields Too Large";
    case 505: return "HTTP Version Not Supported";
    default: return "Internal Server Error";
    }
}

// Sends all bytes of some parts; returns 0, or -1 if the connection has ended.
static int send_parts(int socket, struct iovec *parts, int count) {
    while (count > 0) {
        ssize_t sent = writev(socket, parts, count);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) return -1;
        for (; count > 0 && (size_t)sent >= parts->iov_len; parts++, count--) sent -= parts->iov_len;
        if (count > 0) {
            parts->iov_base = (char *)parts->iov_base + sent;
            parts->iov_len -= sent;
        }
    }
    return 0;
}

// Returns the field that says whether the connection stays open, with the empty line that ends the head.
static const char *connection_field(const struct request *request) {
    return request->keeps_open ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
}

// Sends a response with a short text as its body; `fields` are further fields of its head.
static int send_text(const struct connection *connection, const struct request *request, int status, const char *fields,
                     const char *text) {
    char head[400];
    int length = snprintf(head, sizeof head, "HTTP/1.1 %d %s\r\n%sContent-Type: text/plain\r\nContent-Length: %zu\r\n%s",
                          status, reason(status), fields, strlen(text), connection_field(request));
    struct iovec parts[2] = {{head, length}, {(char *)text, strlen(text)}};
    return send_parts(connection->socket, parts, request->is_head ? 1 : 2);
}

// Sends the response to a request that cannot be served.
static int send_error(const struct connection *connection, const struct request *request, int status) {
    char text[80];
    snprintf(text, sizeof text, "%d %s\n", status, reason(status));
    return send_text(connection, request, status, status == 405 ? "Allow: GET, HEAD\r\n" : "", text);
}

static int hexadecimal(char digit) {
    if (digit >= '0' && digit <= '9') return digit - '0';
    digit |= 0x20;
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

// Decodes a target into a path that cannot leave the root; returns 0 if the target is none.
static int decode_target(const char *target, struct request *request) {
    if (!strncasecmp(target, "http://", 7)) {
        target += 7;
        target += strcspn(target, "/?");
        if (*target != '/') target = "/";
    }
    if (*target != '/') return 0;
    char *out = request->path, *segment = out;
    for (;; target++) {
        int letter = (unsigned char)*target, is_end = letter == 0 || letter == '?' || letter == '#';
        if (letter == '%') {
            int high = hexadecimal(target[1]), low = high < 0 ? -1 : hexadecimal(target[2]);
            if (low < 0) return 0;
            letter = high << 4 | low;
            target += 2;
        }
        if (!is_end && (letter < 0x20 || letter == 0x7f)) return 0;
        if (!is_end && letter != '/') {
            *out++ = letter;
            continue;
        }
        // A segment has ended.
        *out = 0;
        if (!strcmp(segment, "..")) return 0;
        if (!strcmp(segment, ".") || !*segment) {
            out = segment;
        } else if (!is_end) {
            *out++ = '/';
            segment = out;
        }
        if (is_end) break;
    }
    // The path of a folder ends with '/', or is empty.
    strcpy(out, out == request->path || out[-1] == '/' ? "index.html" : "");
    return 1;
}

// Returns whether a list of words, separated by commas, has a word.
static int has_word(const char *list, const char *word) {
    size_t length = strlen(word);
    while (*list) {
        list += strspn(list, " \t,");
        size_t end = strcspn(list, " \t,");
        if (end == length && !strncasecmp(list, word, length)) return 1;
        list += end;
    }
    return 0;
}

// Takes note of one field of a request's head; returns 0, or the status of an error.
static int parse_field(char *line, struct request *request, int *hosts) {
    size_t name = strcspn(line, ": \t");
    if (name == 0 || line[name] != ':') return 400;
    line[name] = 0;
    char *value = line + name + 1;
    value += strspn(value, " \t");
    for (size_t end = strlen(value); end > 0 && strchr(" \t", value[end - 1]); end--) value[end - 1] = 0;
    if (!strcasecmp(line, "host")) {
        *hosts += 1;
    } else if (!strcasecmp(line, "connection")) {
        if (has_word(value, "close")) request->keeps_open = 0;
        else if (has_word(value, "keep-alive")) request->keeps_open = 1;
    } else if (!strcasecmp(line, "transfer-encoding") || (!strcasecmp(line, "content-length") && strcmp(value, "0"))) {
        return 400;
    } else if (!strcasecmp(line, "range")) {
        snprintf(request->range, sizeof request->range, "%s", value);
    }
    return 0;
}

// Parses the head of a request; returns 0, or the status of an error.
static int parse_head(char *head, struct request *request) {
    char *fields = strstr(head, "\r\n");
    *fields = 0;
    char *target = strchr(head, ' '), *version = target ? strchr(target + 1, ' ') : NULL;
    if (!version || target == head || version == target + 1 || strchr(version + 1, ' ')) return 400;
    *target++ = 0;
    *version++ = 0;
    if (strncmp(version, "HTTP/", 5) || strlen(version) != 8 || version[6] != '.') return 400;
    if (version[5] != '1') return 505;
    int is_old = version[7] == '0';
    request->keeps_open = !is_old;
    request->is_head = !strcmp(head, "HEAD");
    if (!request->is_head && strcmp(head, "GET")) return 405;
    if (strlen(target) > TARGET_LIMIT) return 414;
    int hosts = 0;
    for (char *line = fields + 2; *line;) {
        char *end = strstr(line, "\r\n");
        *end = 0;
        int status = parse_field(line, request, &hosts);
        if (status) return status;
        line = end + 2;
    }
    if (hosts > 1 || (!hosts && !is_old)) return 400;
    return decode_target(target, request) ? 0 : 400;
}

// Receives the next request of a connection; returns 0, the status of an error, or -1 at the connection's end.
static int next_request(struct connection *connection, struct request *request) {
    size_t searched = 0;
    request->is_head = request->keeps_open = request->range[0] = 0;
    for (;;) {
        connection->bytes[connection->length] = 0;
        char *end = strstr(connection->bytes + (searched > 3 ? searched - 3 : 0), "\r\n\r\n");
        if (end) {
            // The head keeps one line end, so that each of its lines has one.
            size_t used = end + 4 - connection->bytes;
            end[2] = 0;
            int status = parse_head(connection->bytes, request);
            if (status) request->keeps_open = 0;
            connection->length -= used;
            memmove(connection->bytes, connection->bytes + used, connection->length);
            return status;
        }
        if (memchr(connection->bytes, 0, connection->length)) return 400;
        if (connection->length == HEAD_LIMIT) return strstr(connection->bytes, "\r\n") ? 431 : 414;
        searched = connection->length;
        ssize_t got = recv(connection->socket, connection->bytes + connection->length, HEAD_LIMIT - connection->length, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return -1;
        connection->length += got;
    }
}

// Server's part for one request: sends a response; returns 0, or -1 if the connection has to be closed.
typedef int respond_function(struct connection *, struct request *);

// Work of all threads: the listening socket, and the function that serves a request.
static struct {
    int listener;
    respond_function *respond;
} server;

// Receives and drops what follows a request that was not served: a close with unread bytes would reset the connection,
// and the client could lose the response.
static void drain(struct connection *connection) {
    shutdown(connection->socket, SHUT_WR);
    for (int rest = 64; rest > 0 && recv(connection->socket, connection->bytes, HEAD_LIMIT, 0) > 0; rest--) {}
}

// Serves one connection after the other, each to its end.
static void *serve_connections(void *argument) {
    struct connection *connection = malloc(sizeof *connection);
    struct request request;
    if (!connection) fail("memory for a connection");
    for (;;) {
        connection->socket = accept4(server.listener, NULL, NULL, SOCK_CLOEXEC);
        if (connection->socket < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) usleep(10000);
            else if (errno != EINTR && errno != ECONNABORTED) fail("accept");
            continue;
        }
        int no_delay = 1;
        setsockopt(connection->socket, IPPROTO_TCP, TCP_NODELAY, &no_delay, sizeof no_delay);
        connection->length = 0;
        for (;;) {
            int status = next_request(connection, &request);
            if (status < 0) break;
            int ended = status ? send_error(connection, &request, status) : server.respond(connection, &request);
            if (status) drain(connection);
            if (ended || !request.keeps_open) break;
        }
        close(connection->socket);
    }
    return argument;
}

// Listens at a port (0: one that the system chooses), says at which, and serves connections by a number of threads.
static void serve(int port, int threads, respond_function *respond) {
    signal(SIGPIPE, SIG_IGN);
    server.respond = respond;
    server.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (server.listener < 0) fail("socket");
    int reuse = 1;
    setsockopt(server.listener, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    socklen_t length = sizeof address;
    if (bind(server.listener, (struct sockaddr *)&address, length) || listen(server.listener, BACKLOG) ||
        getsockname(server.listener, (struct sockaddr *)&address, &length))
        fail("listen");
    printf("listening at port %d\n", ntohs(address.sin_port));
    fflush(stdout);
    for (int number = 1; number < threads; number++) {
        pthread_t thread;
        if ((errno = pthread_create(&thread, NULL, serve_connections, NULL))) fail("pthread_create");
    }
    serve_connections(NULL);
}
