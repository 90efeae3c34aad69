/* Messages in several communicators at once, between groups, and to oneself; collective operations that overlap.
 *
 * Licence: MIT or Apache-2.0, as the rest of the project. */
#include "everything.h"

/* The same source, tag and size in many communicators: only the communicator tells the messages apart. */
static void same_tag(void)
{
    enum { COUNT = 150 };
    MPI_Comm comms[COUNT];
    MPI_Request requests[2 * COUNT];
    int values[COUNT], mine[COUNT], right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    for (int i = 0; i < COUNT; i++) {
        at("MPI_Comm_dup %d", i);
        MPI_Comm_dup(i % 2 ? comms[i - 1] : MPI_COMM_WORLD, &comms[i]);
    }
    for (int pass = 0; pass < 2; pass++) {
        at("messages in %d communicators, %s", COUNT, pass ? "unexpected" : "expected");
        for (int i = 0; i < COUNT; i++) {
            mine[i] = rank * COUNT + i;
            int k = COUNT - 1 - i;
            if (pass == 0)
                MPI_Irecv(&values[k], 1, MPI_INT, i % 3 ? left : MPI_ANY_SOURCE, i % 4 ? 1 : MPI_ANY_TAG, comms[k],
                          &requests[k]);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        for (int i = 0; i < COUNT; i++)
            MPI_Isend(&mine[i], 1, MPI_INT, right, 1, comms[i], &requests[COUNT + i]);
        MPI_Barrier(MPI_COMM_WORLD);
        for (int k = COUNT; pass == 1 && k-- > 0;)
            MPI_Irecv(&values[k], 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, comms[k], &requests[k]);
        MPI_Waitall(2 * COUNT, requests, MPI_STATUSES_IGNORE);
        for (int i = 0; i < COUNT; i++)
            CHECK(values[i] == left * COUNT + i, "communicator %d has the message of another one", i);
    }
    for (int i = 0; i < COUNT; i++)
        MPI_Comm_free(&comms[i]);
}

/* Even and odd ranks, each group with its own ranks, and the two as an intercommunicator. */
static void groups(void)
{
    MPI_Comm half, both, merged;
    int my_rank, half_size, far_size, value = -1, sum;
    at("MPI_Comm_split");
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    MPI_Comm_rank(half, &my_rank);
    MPI_Comm_size(half, &half_size);
    CHECK(my_rank == half_size - 1 - rank / 2, "rank %d in its half", my_rank);
    at("MPI_Allreduce in both halves");
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, half);
    CHECK(sum == half_size * (rank % 2) + half_size * (half_size - 1), "sum %d", sum);

    at("MPI_Intercomm_create");
    int far_leader = rank % 2 ? (ranks - 1) / 2 * 2 : (ranks - 2) / 2 * 2 + 1;
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, far_leader, 12, &both);
    MPI_Comm_remote_size(both, &far_size);
    CHECK(far_size == ranks - half_size, "%d ranks on the other side", far_size);
    at("messages between groups");
    for (int i = 0; i < far_size; i++) {
        MPI_Request request;
        MPI_Isend(&rank, 1, MPI_INT, i, 3, both, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    for (int i = far_size; i-- > 0;) {
        MPI_Status status;
        MPI_Recv(&value, 1, MPI_INT, i, 3, both, &status);
        CHECK(status.MPI_SOURCE == i && value == (far_size - 1 - i) * 2 + !(rank % 2), "rank %d says %d", i, value);
    }
    at("MPI_Bcast between groups");
    int root = rank % 2 ? 0 : my_rank == 0 ? MPI_ROOT : MPI_PROC_NULL;
    value = rank % 2 ? -1 : 4711;
    MPI_Bcast(&value, 1, MPI_INT, root, both);
    CHECK(value == 4711, "%d instead of 4711", value);
    at("MPI_Allreduce between groups");
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, both);
    CHECK(sum == far_size * !(rank % 2) + far_size * (far_size - 1), "sum %d", sum);
    at("MPI_Intercomm_merge");
    MPI_Intercomm_merge(both, rank % 2, &merged);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, merged);
    CHECK(sum == ranks * (ranks - 1) / 2, "sum %d", sum);
    MPI_Comm_free(&merged);
    MPI_Comm_free(&both);
    MPI_Comm_free(&half);
}

/* A communicator that is freed while messages are under way lives until they have arrived. */
static void freed_early(void)
{
    enum { SIZE = 200000 };
    char *out = memory(SIZE), *in = memory(SIZE);
    int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    MPI_Comm comm;
    MPI_Request requests[2];
    at("MPI_Comm_free with messages under way");
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    fill(out, SIZE, (unsigned)rank);
    MPI_Irecv(in, SIZE, MPI_BYTE, left, 2, comm, &requests[0]);
    MPI_Isend(out, SIZE, MPI_BYTE, right, 2, comm, &requests[1]);
    MPI_Comm_free(&comm);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    check(in, SIZE, (unsigned)left);
    free(out);
    free(in);
}

void communicators(void)
{
    same_tag();
    if (ranks > 1)
        groups();
    freed_early();
}

/* Messages to oneself, of all sizes, before and after their receives, also with wildcards and matched probes. */
void self(void)
{
    static const size_t message_sizes[] = {0, 1, 100, 9000, 200000, 1 << 20};
    enum { SIZES = sizeof message_sizes / sizeof *message_sizes };
    MPI_Comm comms[] = {MPI_COMM_WORLD, MPI_COMM_SELF};
    char *out = memory(1 << 20), *in = memory((1 << 20) + GUARD);
    MPI_Request send, receive;
    MPI_Status status;
    MPI_Message message;
    for (int i = 0; i < 2 * SIZES * 6; i++) {
        size_t size = message_sizes[i / 2 % SIZES];
        int bytes = (int)size, to = i % 2 ? 0 : rank, way = i / 2 / SIZES, flag;
        MPI_Comm comm = comms[i % 2];
        at("%d bytes to myself, way %d", bytes, way);
        fill(out, size, (unsigned)i);
        memset(in, 0, size);
        set_guard(in + size);
        if (way < 2) {
            MPI_Irecv(in, bytes, MPI_BYTE, way ? MPI_ANY_SOURCE : to, way ? MPI_ANY_TAG : i, comm, &receive);
            if (way == 0)
                MPI_Issend(out, bytes, MPI_BYTE, to, i, comm, &send);
            else
                MPI_Irsend(out, bytes, MPI_BYTE, to, i, comm, &send);
            MPI_Wait(&receive, &status);
        } else if (way < 4) {
            MPI_Isend(out, bytes, MPI_BYTE, to, i, comm, &send);
            MPI_Probe(way == 2 ? to : MPI_ANY_SOURCE, i, comm, &status);
            check_status(&status, to, i, size);
            MPI_Recv(in, bytes, MPI_BYTE, way == 2 ? MPI_ANY_SOURCE : to, MPI_ANY_TAG, comm, &status);
        } else if (way == 4) {
            MPI_Isend(out, bytes, MPI_BYTE, to, i, comm, &send);
            do
                MPI_Improbe(MPI_ANY_SOURCE, i, comm, &flag, &message, &status);
            while (!flag);
            check_status(&status, to, i, size);
            MPI_Mrecv(in, bytes, MPI_BYTE, &message, &status);
        } else {
            MPI_Irecv(in, bytes, MPI_BYTE, to, i, comm, &receive);
            MPI_Cancel(&receive);
            MPI_Wait(&receive, &status);
            MPI_Test_cancelled(&status, &flag);
            CHECK(flag, "not cancelled");
            MPI_Isend(out, bytes, MPI_BYTE, to, i, comm, &send);
            MPI_Recv(in, bytes, MPI_BYTE, to, i, comm, &status);
        }
        MPI_Wait(&send, MPI_STATUS_IGNORE);
        check_status(&status, to, i, size);
        check(in, size, (unsigned)i);
        check_guard(in + size);
    }
    free(out);
    free(in);
}

/* Collective operations of one communicator that run at the same time, and messages beside them. */
void collectives_at_once(void)
{
    enum { COUNT = 60, INTS = 300 };
    static int in[COUNT][INTS], out[COUNT][INTS];
    MPI_Request requests[COUNT + 2];
    int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    for (int round = 0; round < 10; round++) {
        at("%d operations at once, round %d", COUNT, round);
        for (int k = 0; k < COUNT; k++) {
            for (int i = 0; i < INTS; i++) {
                out[k][i] = rank + k * INTS + i;
                in[k][i] = k % 3 == 0 && rank == k % ranks ? k * INTS + i : -1;
            }
            if (k % 3 == 0)
                MPI_Ibcast(in[k], INTS, MPI_INT, k % ranks, MPI_COMM_WORLD, &requests[k]);
            else if (k % 3 == 1)
                MPI_Iallreduce(out[k], in[k], INTS, MPI_INT, MPI_MAX, MPI_COMM_WORLD, &requests[k]);
            else
                MPI_Ibarrier(MPI_COMM_WORLD, &requests[k]);
        }
        MPI_Irecv(in[2], INTS, MPI_INT, left, 1, MPI_COMM_WORLD, &requests[COUNT]);
        MPI_Isend(out[2], INTS, MPI_INT, right, 1, MPI_COMM_WORLD, &requests[COUNT + 1]);
        /* In another order than they began. */
        for (int k = 0; k < COUNT + 2; k++)
            MPI_Wait(&requests[(k * 7 + round) % (COUNT + 2)], MPI_STATUS_IGNORE);
        for (int k = 0; k < COUNT; k++) {
            for (int i = 0; i < INTS && k % 3 < 2; i++)
                CHECK(in[k][i] == (k % 3 ? ranks - 1 : 0) + k * INTS + i, "operation %d, int %d", k, i);
        }
        for (int i = 0; i < INTS; i++)
            CHECK(in[2][i] == left + 2 * INTS + i, "the message beside them, int %d", i);
    }
}
