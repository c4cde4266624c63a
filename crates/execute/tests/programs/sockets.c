// TCP between threads of the program: listen, accept, connect, ends, resets, options.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { BYTES = 1000000 };

static struct sockaddr_in address;

static int dial(void) {
    int socket_ = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(socket_, (struct sockaddr *)&address, sizeof address)) { printf("connect: %s\n", strerror(errno)); close(socket_); return -1; }
    return socket_;
}

static void *echo(void *argument) {
    int listener = *(int *)argument;
    struct sockaddr_in peer;
    socklen_t length = sizeof peer;
    int end = accept4(listener, (struct sockaddr *)&peer, &length, SOCK_CLOEXEC);
    char buffer[5000];
    long total = 0, got;
    while ((got = recv(end, buffer, sizeof buffer, 0)) > 0) {
        total += got;
        for (long sent = 0; sent < got;) {
            long part = send(end, buffer + sent, got - sent, MSG_NOSIGNAL);
            if (part < 0) { printf("echo: %s\n", strerror(errno)); break; }
            sent += part;
        }
    }
    shutdown(end, SHUT_WR);
    close(end);
    return (void *)total;
}

static void *collect(void *argument) {
    int end = *(int *)argument;
    unsigned char buffer[7000];
    long got, total = 0;
    unsigned long hash = 0;
    while ((got = read(end, buffer, sizeof buffer)) > 0)
        for (long index = 0; index < got; index++) hash = hash * 31 + buffer[index], total++;
    printf("received %ld, hash %lx\n", total, hash);
    return NULL;
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    printf("option: %d\n", setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one));
    address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    printf("bind: %d\n", bind(listener, (struct sockaddr *)&address, sizeof address));
    socklen_t length = sizeof address;
    getsockname(listener, (struct sockaddr *)&address, &length);
    printf("port: %d, length %d\n", address.sin_port != 0, length);
    printf("refused: ");
    fflush(stdout);
    dial();
    printf("listen: %d\n", listen(listener, 5));
    pthread_t server, reader;
    pthread_create(&server, NULL, echo, &listener);
    int client = dial();
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    pthread_create(&reader, NULL, collect, &client);
    unsigned char *bytes = malloc(BYTES);
    for (int index = 0; index < BYTES; index++) bytes[index] = index * 7 + index / 251;
    long sent = 0;
    while (sent < BYTES) {
        struct iovec parts[2] = {{bytes + sent, (BYTES - sent) / 2}, {bytes + sent + (BYTES - sent) / 2, BYTES - sent - (BYTES - sent) / 2}};
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
        long part = sendmsg(client, &message, 0);
        if (part < 0) { perror("send"); return 1; }
        sent += part;
    }
    shutdown(client, SHUT_WR);
    long late = write(client, "x", 1);
    int reason = errno;
    void *total;
    pthread_join(server, &total);
    pthread_join(reader, NULL);
    printf("write after the end: %ld %s\n", late, strerror(reason));
    printf("echoed %ld\n", (long)total);
    close(client);

    client = dial();
    int other = accept(listener, NULL, NULL);
    struct sockaddr_in name, peer;
    length = sizeof name;
    getsockname(client, (struct sockaddr *)&name, &length);
    getpeername(other, (struct sockaddr *)&peer, &length);
    printf("names: %d\n", name.sin_port == peer.sin_port && name.sin_addr.s_addr == peer.sin_addr.s_addr);
    fcntl(client, F_SETFL, O_NONBLOCK);
    char buffer[100] = "";
    printf("empty: %ld", (long)recv(client, buffer, 100, 0));
    printf(" %s\n", strerror(errno));
    if (send(other, "peeked", 6, 0) != 6) return 1;
    struct pollfd polled = {client, POLLIN | POLLOUT | POLLRDHUP, 0};
    printf("poll: %d", poll(&polled, 1, 1000));
    printf(" %x\n", polled.revents);
    printf("peek: %ld\n", (long)recv(client, buffer, 3, MSG_PEEK));
    printf("recv: %ld", (long)recv(client, buffer, 100, 0));
    printf(" %s\n", buffer);
    close(other);
    poll(&polled, 1, 1000);
    printf("ended: %x, %ld\n", polled.revents, (long)recv(client, buffer, 100, 0));
    close(client);
    client = dial();
    other = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    if (write(client, "unread", 6) != 6) return 1;
    usleep(1000);
    close(other);
    usleep(1000);
    printf("reset: %ld", (long)read(client, buffer, 100));
    printf(" %s\n", strerror(errno));
    printf("then: %ld\n", (long)read(client, buffer, 100));
    printf("pipe: %ld", (long)write(client, "x", 1));
    printf(" %s\n", strerror(errno));
    close(client);
    fcntl(listener, F_SETFL, O_NONBLOCK);
    printf("none: %d", accept(listener, NULL, NULL));
    printf(" %s\n", strerror(errno));
    printf("family: %d", socket(12345, SOCK_STREAM, 0));
    printf(" %s\n", strerror(errno));
    int fresh = socket(AF_INET, SOCK_STREAM, 0);
    printf("fresh: %ld", (long)read(fresh, buffer, 1));
    printf(" %s\n", strerror(errno));
    int error;
    length = sizeof error;
    printf("error: %d", getsockopt(fresh, SOL_SOCKET, SO_ERROR, &error, &length));
    printf(" %d %d\n", error, length);
    printf("no socket: %d", listen(0, 5));
    printf(" %s\n", strerror(errno));
    return 0;
}
