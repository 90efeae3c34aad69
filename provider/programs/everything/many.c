/* Tens of thousands of receives that wait, of messages that nobody expects, and of sends that are under way.
 *
 * Licence: MIT or Apache-2.0, as the rest of the project. */
#include "everything.h"

static int count;
static MPI_Request *requests;
static int64_t *values;

/* Message i is received by its tag, by its place among messages of one tag, or by a wildcard. */
enum kind { OWN_TAGS, ONE_TAG, ANY_SOURCE_OWN_TAGS, ANYTHING, KINDS };
static const char *const kind_names[KINDS] = {"a tag each", "one tag", "a tag each, any source", "any source and tag"};

static void receive(int i, int from, enum kind kind)
{
    bool own = kind == OWN_TAGS || kind == ANY_SOURCE_OWN_TAGS;
    MPI_Irecv(&values[i], 1, MPI_INT64_T, kind >= ANY_SOURCE_OWN_TAGS ? MPI_ANY_SOURCE : from,
              kind == ANYTHING ? MPI_ANY_TAG : own ? i : 0, MPI_COMM_WORLD, &requests[i]);
}

static void send(int i, int to, enum kind kind)
{
    bool own = kind == OWN_TAGS || kind == ANY_SOURCE_OWN_TAGS;
    values[i] = (int64_t)i * 1000003 + rank;
    MPI_Isend(&values[i], 1, MPI_INT64_T, to, own ? i : 0, MPI_COMM_WORLD, &requests[i]);
}

static void flood(int from, int to)
{
    for (int variant = 0; variant < KINDS * 2; variant++) {
        enum kind kind = variant / 2;
        bool expected = variant % 2, own = kind == OWN_TAGS || kind == ANY_SOURCE_OWN_TAGS;
        at("%d messages, %s, %s, %d to %d", count, kind_names[kind], expected ? "expected" : "unexpected", from, to);
        if (rank == from) {
            if (expected)
                await_ready(to);
            /* The last tags first, where tags differ, so that each receive is searched for. */
            for (int i = 0; i < count; i++)
                send(own ? count - 1 - i : i, to, kind);
            if (!expected)
                MPI_Send(NULL, 0, MPI_BYTE, to, GO, MPI_COMM_WORLD);
            MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
            continue;
        }
        if (!expected)
            MPI_Recv(NULL, 0, MPI_BYTE, from, GO, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < count; i++)
            receive(i, from, kind);
        if (expected)
            ready(from);
        MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
        for (int i = 0; i < count; i++)
            CHECK(values[i] == (int64_t)i * 1000003 + from, "message %d is wrong", i);
    }
}

/* All send to all at once, more than any queue has room for; nobody receives before all have sent. */
static void everybody(void)
{
    enum { SIZE_MAX_HERE = 20000 };
    int each = brief ? 100 : 400;
    size_t total = (size_t)(each * ranks);
    char *out = memory(total * SIZE_MAX_HERE), *in = memory(SIZE_MAX_HERE);
    MPI_Request *sends = memory(total * sizeof *sends);
    at("%d messages from everybody to everybody", each);
    for (int i = 0; i < each; i++) {
        for (int to = 0; to < ranks; to++) {
            size_t index = (size_t)(i * ranks + to), size = (size_t)(i * 7919 % SIZE_MAX_HERE);
            fill(out + index * SIZE_MAX_HERE, size, seed_of(rank, to, (unsigned)i));
            MPI_Isend(out + index * SIZE_MAX_HERE, (int)size, MPI_BYTE, to, 0, MPI_COMM_WORLD, &sends[index]);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    int *next = memory(sizeof *next * (size_t)ranks);
    memset(next, 0, sizeof *next * (size_t)ranks);
    for (size_t i = 0; i < total; i++) {
        MPI_Status status;
        MPI_Recv(in, SIZE_MAX_HERE, MPI_BYTE, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &status);
        int from = status.MPI_SOURCE, number = next[from]++;
        size_t size = (size_t)(number * 7919 % SIZE_MAX_HERE);
        check_status(&status, from, 0, size);
        check(in, size, seed_of(from, rank, (unsigned)number));
    }
    MPI_Waitall((int)total, sends, MPI_STATUSES_IGNORE);
    free(next);
    free(sends);
    free(in);
    free(out);
}

/* Requests that are waited for one by one, in whatever order they complete. */
static void in_any_order(int from, int to)
{
    enum { COUNT = 2000, LONG = 30000 };
    MPI_Status statuses[64];
    int indices[64], done = 0, index, flag;
    char *boxes = memory((size_t)COUNT / 10 * LONG);
    at("requests in any order, %d to %d", from, to);
    for (int i = 0; i < COUNT; i++) {
        int size = i % 10 ? 8 : LONG;
        void *box = i % 10 ? (void *)&values[i] : boxes + i / 10 * LONG;
        if (rank == to) {
            MPI_Irecv(box, size, MPI_BYTE, from, i % 100, MPI_COMM_WORLD, &requests[i]);
        } else {
            fill(box, (size_t)size, (unsigned)i);
            MPI_Isend(box, size, MPI_BYTE, to, i % 100, MPI_COMM_WORLD, &requests[i]);
        }
    }
    while (done < COUNT) {
        int some = 0;
        if (done % 3 == 0) {
            MPI_Waitany(COUNT, requests, &index, MPI_STATUS_IGNORE);
            some = 1;
        } else if (done % 3 == 1) {
            MPI_Testany(COUNT, requests, &index, &flag, MPI_STATUS_IGNORE);
            some = flag && index != MPI_UNDEFINED;
            if (!some)
                MPI_Waitsome(64, requests + done % (COUNT - 64), &some, indices, statuses);
            some = some == MPI_UNDEFINED ? 0 : some;
        } else {
            MPI_Testsome(64, requests + done % (COUNT - 64), &some, indices, statuses);
            if (some == MPI_UNDEFINED || some == 0) {
                MPI_Waitany(COUNT, requests, &index, MPI_STATUS_IGNORE);
                some = 1;
            }
        }
        done += some;
    }
    MPI_Testall(COUNT, requests, &flag, MPI_STATUSES_IGNORE);
    CHECK(flag && done == COUNT, "%d requests have completed, not %d", done, COUNT);
    for (int i = 0; i < COUNT && rank == to; i++)
        check(i % 10 ? (void *)&values[i] : boxes + i / 10 * LONG, i % 10 ? 8 : LONG, (unsigned)i);
    free(boxes);
}

void many(void)
{
    count = many_messages;
    CHECK(count >= 2000, "--many %d is too little", count);
    requests = memory(sizeof *requests * (size_t)count);
    values = memory(sizeof *values * (size_t)count);
    for_all_pairs(flood);
    everybody();
    for_all_pairs(in_any_order);
    free(requests);
    free(values);
}
