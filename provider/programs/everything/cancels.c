/* Receives that are cancelled: before a message comes, after, and at the same time.
 *
 * Licence: MIT or Apache-2.0, as the rest of the project. */
#include "everything.h"

static const size_t message_sizes[] = {0, 8, 3000, 100000};
enum { SIZES = sizeof message_sizes / sizeof *message_sizes, LARGEST = 100000 };

static char *box;

/* Cancels, and tells whether that was in time. */
static bool cancel(MPI_Request *request, MPI_Status *status)
{
    int cancelled;
    MPI_Cancel(request);
    MPI_Wait(request, status);
    MPI_Test_cancelled(status, &cancelled);
    return cancelled;
}

static void in_time(int from, int to)
{
    MPI_Request request;
    MPI_Status status;
    for (int i = 0; i < SIZES; i++) {
        int size = (int)message_sizes[i];
        at("cancel before a message of %d bytes, %d to %d", size, from, to);
        if (rank == from) {
            fill(box, message_sizes[i], 3);
            await_ready(to);
            MPI_Send(box, size, MPI_BYTE, to, i, MPI_COMM_WORLD);
            continue;
        }
        int source = i % 2 ? MPI_ANY_SOURCE : from, tag = i / 2 % 2 ? MPI_ANY_TAG : i;
        memset(box, 0x11, LARGEST);
        MPI_Irecv(box, LARGEST, MPI_BYTE, source, tag, MPI_COMM_WORLD, &request);
        CHECK(cancel(&request, &status), "no message was sent, and yet the receive was not cancelled");
        ready(from);
        /* The cancelled receive takes nothing. */
        char *other = memory(LARGEST);
        MPI_Recv(other, size, MPI_BYTE, from, i, MPI_COMM_WORLD, &status);
        check_status(&status, from, i, message_sizes[i]);
        check(other, message_sizes[i], 3);
        free(other);
        for (int byte = 0; byte < LARGEST; byte++)
            CHECK(box[byte] == 0x11, "a cancelled receive has written byte %d", byte);
    }
}

/* A message of the same source that was sent later has been received, so the receive has its message already. */
static void too_late(int from, int to)
{
    MPI_Request request;
    MPI_Status status;
    for (int i = 0; i < SIZES; i++) {
        int size = (int)message_sizes[i];
        at("cancel after a message of %d bytes, %d to %d", size, from, to);
        if (rank == from) {
            fill(box, message_sizes[i], 4);
            await_ready(to);
            MPI_Isend(box, size, MPI_BYTE, to, 5, MPI_COMM_WORLD, &request);
            MPI_Send(NULL, 0, MPI_BYTE, to, 5, MPI_COMM_WORLD);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            continue;
        }
        MPI_Irecv(box, size, MPI_BYTE, from, 5, MPI_COMM_WORLD, &request);
        ready(from);
        MPI_Recv(NULL, 0, MPI_BYTE, from, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CHECK(!cancel(&request, &status), "the receive was cancelled after its message came");
        check_status(&status, from, 5, message_sizes[i]);
        check(box, message_sizes[i], 4);
    }
}

/* Every second one of many receives is cancelled; the messages go to the others, in order. */
static void every_second(int from, int to)
{
    enum { COUNT = 1000 };
    static MPI_Request requests[COUNT];
    static int values[COUNT];
    MPI_Status status;
    at("every second receive is cancelled, %d to %d", from, to);
    for (int i = 0; i < COUNT; i++)
        values[i] = rank == from ? i : -1;
    if (rank == from) {
        await_ready(to);
        for (int i = 1; i < COUNT; i += 2)
            MPI_Send(&values[i], 1, MPI_INT, to, 7, MPI_COMM_WORLD);
        return;
    }
    for (int i = 0; i < COUNT; i++)
        MPI_Irecv(&values[i], 1, MPI_INT, i % 3 ? from : MPI_ANY_SOURCE, i % 5 ? 7 : MPI_ANY_TAG, MPI_COMM_WORLD,
                  &requests[i]);
    for (int i = 0; i < COUNT; i += 2)
        CHECK(cancel(&requests[i], &status), "receive %d was not cancelled", i);
    ready(from);
    MPI_Waitall(COUNT, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < COUNT; i++)
        CHECK(values[i] == (i % 2 ? i : -1), "receive %d has value %d", i, values[i]);
}

/* Messages meet their cancels. Either is right, but no message is lost or comes twice. */
static void races(int from, int to)
{
    enum { ROUNDS = 300 };
    MPI_Request request;
    MPI_Status status;
    at("cancels race with messages, %d to %d", from, to);
    for (int round = 0; round < ROUNDS; round++) {
        size_t size = message_sizes[round % SIZES];
        if (rank == from) {
            fill(box, size, (unsigned)round);
            await_ready(to);
            MPI_Send(box, (int)size, MPI_BYTE, to, 8, MPI_COMM_WORLD);
            continue;
        }
        MPI_Irecv(box, (int)size, MPI_BYTE, from, 8, MPI_COMM_WORLD, &request);
        ready(from);
        for (int flag, tests = 0; tests < round % 50; tests++)
            MPI_Iprobe(from, GO, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
        if (cancel(&request, &status))
            MPI_Recv(box, (int)size, MPI_BYTE, from, 8, MPI_COMM_WORLD, &status);
        check_status(&status, from, 8, size);
        check(box, size, (unsigned)round);
    }
}

void cancels(void)
{
    box = memory(LARGEST);
    for_all_pairs(in_time);
    for_all_pairs(too_late);
    for_all_pairs(every_second);
    for_all_pairs(races);
    free(box);
}
