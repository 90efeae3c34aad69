/* Every way to send, to a receive that waits and to one that comes later.
 *
 * Licence: MIT or Apache-2.0, as the rest of the project. */
#include "everything.h"

typedef int blocking_call(const void *, int, MPI_Datatype, int, int, MPI_Comm);
typedef int starting_call(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);

static const struct mode {
    const char *name;
    blocking_call *blocking;
    starting_call *immediate;
    starting_call *persistent;
    bool ready; /* may only be sent to a receive that waits */
    bool synchronous;
} all[] = {
    {"standard", MPI_Send, MPI_Isend, MPI_Send_init, false, false},
    {"synchronous", MPI_Ssend, MPI_Issend, MPI_Ssend_init, false, true},
    {"buffered", MPI_Bsend, MPI_Ibsend, MPI_Bsend_init, false, false},
    {"ready", MPI_Rsend, MPI_Irsend, MPI_Rsend_init, true, false},
};

enum way { BLOCKING, IMMEDIATE, PERSISTENT, WAYS };
static const char *const way_names[WAYS] = {"blocking", "immediate", "persistent"};

static const size_t message_sizes[] = {0, 1, 8, 100, 4096, 9000, 70000, 1 << 20};
enum { SIZES = sizeof message_sizes / sizeof *message_sizes, LARGEST = 1 << 20, ROUNDS = 3 };

/* One case: ROUNDS messages of a size, in one mode. */
struct send_case {
    const struct mode *mode;
    enum way way;
    size_t size;
    bool expected; /* the receive is posted before the message is sent */
};

/* `attached` is for buffered sends. */
static char *outbox, *inbox, *attached;

static void send_side(const struct send_case *c, int to)
{
    int size = (int)c->size, tag = size % 1000;
    MPI_Request request;
    if (c->way == PERSISTENT)
        c->mode->persistent(outbox, size, MPI_BYTE, to, tag, MPI_COMM_WORLD, &request);
    for (unsigned round = 0; round < ROUNDS; round++) {
        fill(outbox, c->size, seed_of(rank, to, round));
        if (c->expected)
            await_ready(to);
        if (c->way == BLOCKING) {
            c->mode->blocking(outbox, size, MPI_BYTE, to, tag, MPI_COMM_WORLD);
            continue;
        }
        if (c->way == IMMEDIATE)
            c->mode->immediate(outbox, size, MPI_BYTE, to, tag, MPI_COMM_WORLD, &request);
        else
            MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    if (c->way == PERSISTENT)
        MPI_Request_free(&request);
}

static void receive_side(const struct send_case *c, int from)
{
    int size = (int)c->size, tag = size % 1000;
    MPI_Request request;
    MPI_Status status;
    if (c->way == PERSISTENT)
        MPI_Recv_init(inbox, size, MPI_BYTE, from, tag, MPI_COMM_WORLD, &request);
    for (unsigned round = 0; round < ROUNDS; round++) {
        memset(inbox, 0, c->size);
        set_guard(inbox + size);
        if (!c->expected)
            MPI_Probe(from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (c->way == PERSISTENT)
            MPI_Start(&request);
        else
            MPI_Irecv(inbox, size, MPI_BYTE, from, tag, MPI_COMM_WORLD, &request);
        if (c->expected)
            ready(from);
        MPI_Wait(&request, &status);
        check_status(&status, from, tag, c->size);
        check(inbox, c->size, seed_of(from, rank, round));
        check_guard(inbox + size);
    }
    if (c->way == PERSISTENT)
        MPI_Request_free(&request);
}

static void all_cases(int from, int to)
{
    for (size_t m = 0; m < sizeof all / sizeof *all; m++) {
        for (int case_number = 0; case_number < WAYS * SIZES * 2; case_number++) {
            struct send_case c = {&all[m], case_number % WAYS, message_sizes[case_number / WAYS % SIZES],
                                  case_number / WAYS / SIZES};
            if (c.mode->ready && !c.expected)
                continue;
            if (c.mode->synchronous && c.way == BLOCKING && left_out(BLOCKING_SSEND))
                continue;
            if (c.mode->blocking == MPI_Bsend && c.way == PERSISTENT && left_out(PERSISTENT_BSEND))
                continue;
            at("%s %s send, %zu bytes, %s, %d to %d", way_names[c.way], c.mode->name, c.size,
               c.expected ? "expected" : "unexpected", from, to);
            if (rank == to) {
                receive_side(&c, from);
                continue;
            }
            MPI_Buffer_attach(attached, ROUNDS * (LARGEST + MPI_BSEND_OVERHEAD));
            send_side(&c, to);
            /* Waits until the messages have left the buffer. */
            void *detached;
            int size;
            MPI_Buffer_detach(&detached, &size);
        }
    }
}

/* A synchronous send is not complete before its receive has started. */
static void synchronous_sends_wait(int from, int to)
{
    for (int i = 0; i < SIZES; i++) {
        int size = (int)message_sizes[i], done = 0;
        MPI_Request request;
        at("synchronous send of %d bytes that has to wait, %d to %d", size, from, to);
        if (rank == from) {
            fill(outbox, message_sizes[i], 5);
            MPI_Issend(outbox, size, MPI_BYTE, to, 1, MPI_COMM_WORLD, &request);
            for (int tests = 0; tests < 200 && !done; tests++)
                MPI_Test(&request, &done, MPI_STATUS_IGNORE);
            CHECK(!done, "complete without a receive");
            MPI_Send(NULL, 0, MPI_BYTE, to, GO, MPI_COMM_WORLD);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(NULL, 0, MPI_BYTE, from, GO, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Recv(inbox, size, MPI_BYTE, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            check(inbox, message_sizes[i], 5);
        }
    }
}

/* Both directions at once, around a ring. */
static void exchanges(void)
{
    int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    for (int i = 0; i < SIZES; i++) {
        int size = (int)message_sizes[i];
        MPI_Status status;
        at("MPI_Sendrecv of %d bytes", size);
        fill(outbox, message_sizes[i], seed_of(rank, right, 1));
        MPI_Sendrecv(outbox, size, MPI_BYTE, right, 3, inbox, size, MPI_BYTE, left, 3, MPI_COMM_WORLD, &status);
        check_status(&status, left, 3, message_sizes[i]);
        check(inbox, message_sizes[i], seed_of(left, rank, 1));
        at("MPI_Sendrecv_replace of %d bytes", size);
        MPI_Sendrecv_replace(outbox, size, MPI_BYTE, right, 4, left, 4, MPI_COMM_WORLD, &status);
        check_status(&status, left, 4, message_sizes[i]);
        check(outbox, message_sizes[i], seed_of(left, rank, 1));
    }
    at("MPI_PROC_NULL");
    MPI_Status status;
    MPI_Sendrecv(outbox, 8, MPI_BYTE, MPI_PROC_NULL, 1, inbox, 8, MPI_BYTE, MPI_PROC_NULL, 1, MPI_COMM_WORLD, &status);
    CHECK(status.MPI_SOURCE == MPI_PROC_NULL, "source %d", status.MPI_SOURCE);
}

void modes(void)
{
    outbox = memory(LARGEST + GUARD);
    inbox = memory(LARGEST + GUARD);
    attached = memory(ROUNDS * (LARGEST + MPI_BSEND_OVERHEAD));
    for_all_pairs(all_cases);
    for_all_pairs(synchronous_sends_wait);
    exchanges();
    free(attached);
    free(outbox);
    free(inbox);
}
