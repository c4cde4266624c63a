// HTTP server: a pool of threads that share an epoll set, with files from a folder. It ends when /quit is requested.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { THREADS = 3, REQUEST = 2000 };

struct connection { int socket; int length; char request[REQUEST]; };

static int set, listener;
static char *root;

static void send_all(int socket, const char *bytes, long length) {
    while (length > 0) {
        long sent = send(socket, bytes, length, MSG_NOSIGNAL);
        if (sent <= 0) return;
        bytes += sent;
        length -= sent;
    }
}

static void serve(struct connection *connection) {
    char path[300], name[200], head[200];
    if (sscanf(connection->request, "GET %199s", name) != 1) {
        send_all(connection->socket, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", 47);
        return;
    }
    if (!strcmp(name, "/quit")) {
        send_all(connection->socket, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbye\n", 42);
        close(connection->socket);
        exit(0);
    }
    snprintf(path, sizeof path, "%s%s", root, name);
    int file = open(path, O_RDONLY);
    struct stat status;
    if (file < 0 || fstat(file, &status)) {
        send_all(connection->socket, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", 45);
        return;
    }
    int length = snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %ld\r\n\r\n", (long)status.st_size);
    send_all(connection->socket, head, length);
    off_t offset = 0;
    while (offset < status.st_size && sendfile(connection->socket, file, &offset, status.st_size - offset) > 0) {}
    close(file);
}

static void arm(struct connection *connection, int operation) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT, .data.ptr = connection};
    epoll_ctl(set, operation, connection->socket, &event);
}

static void *work(void *argument) {
    for (;;) {
        struct epoll_event event;
        if (epoll_wait(set, &event, 1, -1) != 1) continue;
        struct connection *connection = event.data.ptr;
        if (!connection) {
            int socket = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
            if (socket < 0) continue;
            connection = calloc(1, sizeof *connection);
            connection->socket = socket;
            arm(connection, EPOLL_CTL_ADD);
            continue;
        }
        long got = recv(connection->socket, connection->request + connection->length, REQUEST - 1 - connection->length, 0);
        if (got <= 0) {
            close(connection->socket);
            free(connection);
            continue;
        }
        connection->length += got;
        connection->request[connection->length] = 0;
        char *end;
        while ((end = strstr(connection->request, "\r\n\r\n"))) {
            serve(connection);
            int used = end + 4 - connection->request;
            memmove(connection->request, end + 4, connection->length - used + 1);
            connection->length -= used;
        }
        arm(connection, EPOLL_CTL_MOD);
    }
    return argument;
}

int main(int argc, char **argv) {
    root = argv[1];
    listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[2]))};
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 100)) { perror("listen"); return 1; }
    fcntl(listener, F_SETFL, O_NONBLOCK);
    set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(set, EPOLL_CTL_ADD, listener, &event);
    pthread_t thread;
    for (int number = 1; number < THREADS; number++) pthread_create(&thread, NULL, work, NULL);
    work(NULL);
    return 0;
}
