/* Messages that are longer than their receive's buffer: an error of class MPI_ERR_TRUNCATE, nothing behind the buffer is
 * written, and the process goes on.
 *
 * Licence: MIT or Apache-2.0, as the rest of the project. */
#include "everything.h"

enum { LARGEST = 1 << 20, ROOM_MAX = 200000 };

static MPI_Comm careful;
static char *outbox, *inbox;

static void check_error(int error)
{
    int class = MPI_SUCCESS;
    MPI_Error_class(error, &class);
    CHECK(class == MPI_ERR_TRUNCATE, "error class %d instead of MPI_ERR_TRUNCATE", class);
}

enum call { RECV, IRECV, PERSISTENT, MRECV, SENDRECV, CALLS };
static const char *const call_names[CALLS] = {"MPI_Recv", "MPI_Irecv", "MPI_Recv_init", "MPI_Mrecv", "MPI_Sendrecv"};

static int receive(enum call call, int room, int from)
{
    int error;
    MPI_Request request;
    MPI_Message message;
    switch (call) {
    case RECV:
        return MPI_Recv(inbox, room, MPI_BYTE, from, 1, careful, MPI_STATUS_IGNORE);
    case IRECV:
        MPI_Irecv(inbox, room, MPI_BYTE, MPI_ANY_SOURCE, 1, careful, &request);
        return MPI_Wait(&request, MPI_STATUS_IGNORE);
    case PERSISTENT:
        MPI_Recv_init(inbox, room, MPI_BYTE, from, MPI_ANY_TAG, careful, &request);
        MPI_Start(&request);
        error = MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Request_free(&request);
        return error;
    case MRECV:
        MPI_Mprobe(from, 1, careful, &message, MPI_STATUS_IGNORE);
        return MPI_Mrecv(inbox, room, MPI_BYTE, &message, MPI_STATUS_IGNORE);
    default:
        return MPI_Sendrecv(NULL, 0, MPI_BYTE, MPI_PROC_NULL, 1, inbox, room, MPI_BYTE, from, 1, careful,
                            MPI_STATUS_IGNORE);
    }
}

static void one_by_one(int from, int to)
{
    static const int sizes[][2] = {{1, 0},       {8, 4},         {3000, 2999},    {20000, 100},
                                   {100000, 0},  {100000, 99999}, {LARGEST, 1000}, {LARGEST, ROOM_MAX}};
    for (int call = 0; call < CALLS; call++) {
        for (int i = 0; i < (int)(sizeof sizes / sizeof *sizes); i++) {
            int size = sizes[i][0], room = sizes[i][1];
            for (int expected = 0; expected < 2; expected++) {
                at("%s, %d bytes into %d, %s, %d to %d", call_names[call], size, room,
                   expected ? "expected" : "unexpected", from, to);
                if (rank == from) {
                    MPI_Request request;
                    fill(outbox, LARGEST, 9);
                    if (expected)
                        await_ready(to);
                    MPI_Isend(outbox, size, MPI_BYTE, to, 1, careful, &request);
                    if (!expected)
                        ready(to);
                    MPI_Wait(&request, MPI_STATUS_IGNORE);
                    /* What follows is not touched by the error. */
                    MPI_Send(outbox, 64, MPI_BYTE, to, 2, careful);
                    continue;
                }
                if (expected)
                    ready(from);
                else
                    await_ready(from);
                set_guard(inbox + room);
                check_error(receive((enum call)call, room, from));
                check_guard(inbox + room);
                MPI_Recv(inbox, 64, MPI_BYTE, from, 2, careful, MPI_STATUS_IGNORE);
                check(inbox, 64, 9);
            }
        }
    }
}

/* Of several receives, the ones that were long enough succeed. */
static void among_others(int from, int to)
{
    enum { COUNT = 30, SIZE = 5000 };
    MPI_Request requests[COUNT];
    MPI_Status statuses[COUNT];
    at("MPI_Waitall with some truncated, %d to %d", from, to);
    if (rank == from) {
        await_ready(to);
        for (int i = 0; i < COUNT; i++) {
            fill(outbox + i * SIZE, SIZE, (unsigned)i);
            MPI_Isend(outbox + i * SIZE, SIZE, MPI_BYTE, to, i, careful, &requests[i]);
        }
        MPI_Waitall(COUNT, requests, MPI_STATUSES_IGNORE);
        return;
    }
    for (int i = 0; i < COUNT; i++)
        MPI_Irecv(inbox + i * SIZE, i % 3 ? SIZE : SIZE - 1, MPI_BYTE, from, i, careful, &requests[i]);
    ready(from);
    CHECK(MPI_Waitall(COUNT, requests, statuses) == MPI_ERR_IN_STATUS, "not MPI_ERR_IN_STATUS");
    for (int i = 0; i < COUNT; i++) {
        while (statuses[i].MPI_ERROR == MPI_ERR_PENDING)
            statuses[i].MPI_ERROR = MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
        if (i % 3 == 0) {
            check_error(statuses[i].MPI_ERROR);
        } else {
            CHECK(statuses[i].MPI_ERROR == MPI_SUCCESS, "receive %d failed", i);
            check(inbox + i * SIZE, SIZE, (unsigned)i);
        }
    }
}

void truncation(void)
{
    outbox = memory(LARGEST);
    inbox = memory(ROOM_MAX + GUARD);
    MPI_Comm_dup(MPI_COMM_WORLD, &careful);
    MPI_Comm_set_errhandler(careful, MPI_ERRORS_RETURN);
    /* MPI_Wait and MPI_Mrecv have no communicator; libraries raise their errors on one of these. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    for_all_pairs(one_by_one);
    for_all_pairs(among_others);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_free(&careful);
    free(outbox);
    free(inbox);
}
