/* The work over a TCP connection, without any library: each side polls a socket that doesn't block. Nothing
 * is matched: both sides know what comes next.
 *
 * Licence: MIT or Apache-2.0, as the rest of the project. */
#include "measure.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

/* A receive; a send is over when it was begun. */
typedef struct receive {
    uint8_t *bytes;
    size_t size;
} operation;

static int rank;
static int connection;

static inline operation start_send(const void *bytes, size_t size, int tag)
{
    (void)tag;
    for (size_t done = 0; done < size;) {
        ssize_t sent = send(connection, (const char *)bytes + done, size - done, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN)
            FAIL("send: %s", strerror(errno));
        done += sent < 0 ? 0 : (size_t)sent;
    }
    return (operation){NULL, 0};
}

static inline operation start_recv(void *bytes, size_t size, int tag, bool any)
{
    (void)tag;
    (void)any;
    return (operation){bytes, size};
}

static inline void wait_one(operation receive)
{
    for (size_t done = 0; done < receive.size;) {
        ssize_t got = recv(connection, receive.bytes + done, receive.size - done, 0);
        if (got == 0 || (got < 0 && errno != EAGAIN))
            FAIL("recv: %s", got == 0 ? "the other side is gone" : strerror(errno));
        done += got < 0 ? 0 : (size_t)got;
    }
}

static inline void cancel_all(operation *operations, int count)
{
    (void)operations;
    if (count > 0)
        FAIL("%s", "a socket has no receives to cancel");
}

#include "pair.h"

#define TRY(call)                                     \
    do {                                              \
        if ((call) < 0)                               \
            FAIL("%s: %s", #call, strerror(errno));   \
    } while (0)

static void connect_sides(void)
{
    const char *own = getenv("PEERS_ADDRESS");
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr(own != NULL ? own : "127.0.0.1")};
    socklen_t length = sizeof address;
    int one = 1, end = socket(AF_INET, SOCK_STREAM, 0);

    TRY(end);
    if (rank == 0) {
        TRY(bind(end, (struct sockaddr *)&address, length));
        TRY(listen(end, 1));
        TRY(getsockname(end, (struct sockaddr *)&address, &length));
        tell(&address, sizeof address);
        TRY(connection = accept(end, NULL, NULL));
        close(end);
    } else {
        hear(&address, sizeof address);
        TRY(connect(end, (struct sockaddr *)&address, length));
        connection = end;
    }
    TRY(setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one));
    TRY(fcntl(connection, F_SETFL, O_NONBLOCK));
}

static void print_version(void)
{
    printf("version a bare socket\n");
}
