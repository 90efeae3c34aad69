/* Threads of each rank that send and receive at once.
 *
 * Licence: MIT or Apache-2.0, as the rest of the project. */
#include "everything.h"

#include <pthread.h>

enum { THREADS = 4, SIZE_MAX_HERE = 40000 };

static MPI_Comm comms[THREADS], shared;
static int rounds, right, left;

static void run_all(void *(*work)(void *))
{
    static int numbers[THREADS];
    pthread_t started[THREADS];
    for (int t = 0; t < THREADS; t++) {
        numbers[t] = t;
        CHECK(pthread_create(&started[t], NULL, work, &numbers[t]) == 0, "no thread");
    }
    for (int t = 0; t < THREADS; t++)
        pthread_join(started[t], NULL);
    MPI_Barrier(MPI_COMM_WORLD);
}

static size_t size_of(int round)
{
    static const size_t message_sizes[] = {0, 8, 100, 2000, SIZE_MAX_HERE};
    return message_sizes[round % 5];
}

/* Each thread has a ring of its own: a tag of a communicator that all use, or a communicator. */
static void ring(int t, MPI_Comm comm, int source)
{
    char *out = memory(SIZE_MAX_HERE), *in = memory(SIZE_MAX_HERE);
    for (int round = 0; round < rounds; round++) {
        size_t size = size_of(round);
        unsigned number = (unsigned)(round * THREADS + t);
        MPI_Request receive, send;
        MPI_Status status;
        fill(out, size, seed_of(rank, right, number));
        if (round % 2)
            MPI_Irecv(in, SIZE_MAX_HERE, MPI_BYTE, source, t, comm, &receive);
        MPI_Isend(out, (int)size, MPI_BYTE, right, t, comm, &send);
        if (round % 2)
            MPI_Wait(&receive, &status);
        else
            MPI_Recv(in, SIZE_MAX_HERE, MPI_BYTE, source, t, comm, &status);
        MPI_Wait(&send, MPI_STATUS_IGNORE);
        check_status(&status, left, t, size);
        check(in, size, seed_of(left, rank, number));
    }
    free(out);
    free(in);
}

static void *by_tag(void *number)
{
    ring(*(int *)number, shared, left);
    return NULL;
}

static void *by_wildcard(void *number)
{
    ring(*(int *)number, shared, MPI_ANY_SOURCE);
    return NULL;
}

static void *by_communicator(void *number)
{
    int t = *(int *)number;
    ring(t, comms[t], MPI_ANY_SOURCE);
    for (int i = 0; i < rounds / 10; i++) {
        int sum;
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comms[t]);
        CHECK(sum == ranks * (ranks - 1) / 2, "thread %d, sum %d", t, sum);
    }
    return NULL;
}

/* All threads take matched messages of one tag: each message is taken by one of them. */
static int taken[THREADS * 200];

static void *by_matched_probe(void *number)
{
    int t = *(int *)number;
    for (int round = 0; round < rounds; round++) {
        int out = round * THREADS + t, in = -1;
        MPI_Request send;
        MPI_Message message;
        MPI_Isend(&out, 1, MPI_INT, right, 0, shared, &send);
        MPI_Mprobe(MPI_ANY_SOURCE, 0, shared, &message, MPI_STATUS_IGNORE);
        MPI_Mrecv(&in, 1, MPI_INT, &message, MPI_STATUS_IGNORE);
        CHECK(in >= 0 && in < rounds * THREADS, "message %d was never sent", in);
        /* No other thread has this number, unless a message came twice. */
        taken[in]++;
        MPI_Wait(&send, MPI_STATUS_IGNORE);
    }
    return NULL;
}

void threads(void)
{
    rounds = brief ? 50 : 200;
    right = (rank + 1) % ranks;
    left = (rank + ranks - 1) % ranks;
    MPI_Comm_dup(MPI_COMM_WORLD, &shared);
    for (int t = 0; t < THREADS; t++)
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[t]);
    at("threads with a tag each");
    run_all(by_tag);
    at("threads with a tag each, any source");
    run_all(by_wildcard);
    at("threads with a communicator each");
    run_all(by_communicator);
    at("threads with matched probes");
    run_all(by_matched_probe);
    for (int i = 0; i < rounds * THREADS; i++)
        CHECK(taken[i] == 1, "message %d was taken %d times", i, taken[i]);
    for (int t = 0; t < THREADS; t++)
        MPI_Comm_free(&comms[t]);
    MPI_Comm_free(&shared);
}
