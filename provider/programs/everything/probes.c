/* Probes, and matched probes.
 *
 * Licence: MIT or Apache-2.0, as the rest of the project. */
#include "everything.h"

static const size_t message_sizes[] = {0, 1, 40, 3000, 20000, 300000};
enum { SIZES = sizeof message_sizes / sizeof *message_sizes, LARGEST = 300000 };

static char *outbox[SIZES], *inbox;

/* The sender's part: one message of each size, with tags 0, 1, ... in order, and then GO. */
static void send_all(int to, bool synchronous)
{
    MPI_Request requests[SIZES + 1];
    for (int i = 0; i < SIZES; i++) {
        fill(outbox[i], message_sizes[i], seed_of(rank, to, (unsigned)i));
        (synchronous ? MPI_Issend : MPI_Isend)(outbox[i], (int)message_sizes[i], MPI_BYTE, to, i, MPI_COMM_WORLD,
                                               &requests[i]);
    }
    MPI_Isend(NULL, 0, MPI_BYTE, to, GO, MPI_COMM_WORLD, &requests[SIZES]);
    MPI_Waitall(SIZES + 1, requests, MPI_STATUSES_IGNORE);
}

static void await_go(int from)
{
    MPI_Recv(NULL, 0, MPI_BYTE, from, GO, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void check_message(const MPI_Status *status, int from, int number)
{
    check_status(status, from, number, message_sizes[number]);
    check(inbox, message_sizes[number], seed_of(from, rank, (unsigned)number));
    check_guard(inbox + message_sizes[number]);
}

static void receive(int from, int tag, int number)
{
    MPI_Status status;
    set_guard(inbox + message_sizes[number]);
    MPI_Recv(inbox, (int)message_sizes[number], MPI_BYTE, from, tag, MPI_COMM_WORLD, &status);
    check_message(&status, from, number);
}

/* Wildcards are tried as the number says. */
static int source_for(int number, int from)
{
    return number % 2 ? MPI_ANY_SOURCE : from;
}

static void probe_and_receive(int from, int to)
{
    int flag;
    MPI_Status status;
    at("probes, %d to %d", from, to);
    if (rank == from) {
        await_ready(to);
        send_all(to, false);
        await_ready(to);
        send_all(to, true);
        return;
    }
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &status);
    CHECK(!flag, "a message of tag %d from %d that was never sent", status.MPI_TAG, status.MPI_SOURCE);
    ready(from);
    await_go(from);
    /* A probe takes nothing away: each of these finds the same message. */
    for (int number = 0; number < SIZES; number++) {
        MPI_Probe(source_for(number, from), number, MPI_COMM_WORLD, &status);
        check_status(&status, from, number, message_sizes[number]);
        MPI_Probe(source_for(number + 1, from), MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        check_status(&status, from, number, message_sizes[number]);
        do
            MPI_Iprobe(from, number, MPI_COMM_WORLD, &flag, &status);
        while (!flag);
        check_status(&status, from, number, message_sizes[number]);
        receive(from, status.MPI_TAG, number);
        MPI_Iprobe(MPI_ANY_SOURCE, number, MPI_COMM_WORLD, &flag, &status);
        CHECK(!flag, "message %d is still there after it was received", number);
    }
    /* The last ones first, while the sender waits for its receivers. */
    ready(from);
    for (int number = SIZES; number-- > 0;) {
        MPI_Probe(MPI_ANY_SOURCE, number, MPI_COMM_WORLD, &status);
        check_status(&status, from, number, message_sizes[number]);
        receive(from, number, number);
    }
    await_go(from);
}

/* A matched message is nobody else's, and can be received in any order, at once or later. */
static void matched(int from, int to, bool synchronous)
{
    MPI_Message messages[SIZES];
    MPI_Status status;
    MPI_Request request;
    int flag;
    at("matched probes%s, %d to %d", synchronous ? " of synchronous sends" : "", from, to);
    if (rank == from) {
        await_ready(to);
        send_all(to, synchronous);
        return;
    }
    MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &messages[0], &status);
    CHECK(!flag, "a message of tag %d from %d that was never sent", status.MPI_TAG, status.MPI_SOURCE);
    ready(from);
    if (!synchronous)
        await_go(from);
    for (int number = 0; number < SIZES; number++) {
        int tag = number % 3 && !synchronous ? MPI_ANY_TAG : number;
        if (number % 2) {
            MPI_Mprobe(source_for(number, from), tag, MPI_COMM_WORLD, &messages[number], &status);
        } else {
            do
                MPI_Improbe(source_for(number, from), tag, MPI_COMM_WORLD, &flag, &messages[number], &status);
            while (!flag);
        }
        check_status(&status, from, number, message_sizes[number]);
        MPI_Iprobe(from, number, MPI_COMM_WORLD, &flag, &status);
        CHECK(!flag, "message %d can be seen after it was matched", number);
    }
    for (int number = SIZES; number-- > 0;) {
        int size = (int)message_sizes[number];
        set_guard(inbox + size);
        if (number % 2) {
            MPI_Mrecv(inbox, size, MPI_BYTE, &messages[number], &status);
        } else {
            MPI_Imrecv(inbox, size, MPI_BYTE, &messages[number], &request);
            MPI_Wait(&request, &status);
        }
        CHECK(messages[number] == MPI_MESSAGE_NULL, "the message is still held");
        check_message(&status, from, number);
    }
    if (synchronous)
        await_go(from);
}

static void matched_standard(int from, int to)
{
    matched(from, to, false);
}

static void matched_synchronous(int from, int to)
{
    matched(from, to, true);
}

/* A receive that waits comes before a probe, and a message that is matched lets the next one through. */
static void matched_beside_receives(int from, int to)
{
    enum { COUNT = 100 };
    static int in[COUNT], out[COUNT];
    MPI_Request requests[COUNT];
    at("matched probes beside receives, %d to %d", from, to);
    for (int i = 0; i < COUNT; i++)
        out[i] = i;
    if (rank == from) {
        await_ready(to);
        for (int i = 0; i < COUNT; i++)
            MPI_Isend(&out[i], 1, MPI_INT, to, 6, MPI_COMM_WORLD, &requests[i]);
        MPI_Waitall(COUNT, requests, MPI_STATUSES_IGNORE);
        return;
    }
    for (int i = 0; i < COUNT / 2; i++)
        MPI_Irecv(&in[i], 1, MPI_INT, from, 6, MPI_COMM_WORLD, &requests[i]);
    ready(from);
    MPI_Message held[COUNT];
    for (int i = COUNT / 2; i < COUNT; i += 2) {
        MPI_Mprobe(from, 6, MPI_COMM_WORLD, &held[i], MPI_STATUS_IGNORE);
        MPI_Recv(&in[i + 1], 1, MPI_INT, from, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    for (int i = COUNT / 2; i < COUNT; i += 2)
        MPI_Mrecv(&in[i], 1, MPI_INT, &held[i], MPI_STATUS_IGNORE);
    MPI_Waitall(COUNT / 2, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < COUNT; i++)
        CHECK(in[i] == i, "message %d instead of %d", in[i], i);
}

void probes(void)
{
    for (int i = 0; i < SIZES; i++)
        outbox[i] = memory(message_sizes[i]);
    inbox = memory(LARGEST + GUARD);
    for_all_pairs(probe_and_receive);
    for_all_pairs(matched_standard);
    if (!left_out(SSEND_TO_MPROBE))
        for_all_pairs(matched_synchronous);
    for_all_pairs(matched_beside_receives);
    at("probes of MPI_PROC_NULL");
    MPI_Message none;
    MPI_Status status;
    MPI_Mprobe(MPI_PROC_NULL, 1, MPI_COMM_WORLD, &none, &status);
    CHECK(none == MPI_MESSAGE_NO_PROC && status.MPI_SOURCE == MPI_PROC_NULL, "not MPI_MESSAGE_NO_PROC");
    MPI_Mrecv(NULL, 0, MPI_BYTE, &none, &status);
    for (int i = 0; i < SIZES; i++)
        free(outbox[i]);
    free(inbox);
}
