/* Every power of two from one byte to 64 MiB, one byte less and one more; both directions at once.
 *
 * Licence: MIT or Apache-2.0, as the rest of the project. */
#include "everything.h"

enum { BITS_MAX = 26, BITS_SHORT = 20 };

static char *outbox, *inbox;

static void exchange(size_t size, int to, int from, bool expected, unsigned number)
{
    MPI_Request receive, send;
    MPI_Status status;
    at("%zu bytes %s, to %d and from %d", size, expected ? "expected" : "unexpected", to, from);
    fill(outbox, size, seed_of(rank, to, number));
    memset(inbox, 0, size);
    set_guard(inbox + size);
    if (expected) {
        MPI_Irecv(inbox, (int)size, MPI_BYTE, from, 1, MPI_COMM_WORLD, &receive);
        MPI_Sendrecv(NULL, 0, MPI_BYTE, from, READY, NULL, 0, MPI_BYTE, to, READY, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Isend(outbox, (int)size, MPI_BYTE, to, 1, MPI_COMM_WORLD, &send);
    if (!expected) {
        MPI_Probe(from, 1, MPI_COMM_WORLD, &status);
        check_status(&status, from, 1, size);
        MPI_Irecv(inbox, (int)size, MPI_BYTE, from, 1, MPI_COMM_WORLD, &receive);
    }
    MPI_Wait(&receive, &status);
    MPI_Wait(&send, MPI_STATUS_IGNORE);
    check_status(&status, from, 1, size);
    check(inbox, size, seed_of(from, rank, number));
    check_guard(inbox + size);
}

void sizes(void)
{
    int bits_max = brief ? BITS_SHORT : BITS_MAX;
    outbox = memory(((size_t)1 << bits_max) + 1);
    inbox = memory(((size_t)1 << bits_max) + 1 + GUARD);
    for (int distance = 1; distance < ranks; distance++) {
        int to = (rank + distance) % ranks, from = (rank + ranks - distance) % ranks;
        exchange(0, to, from, true, 0);
        exchange(0, to, from, false, 0);
        for (int bits = 1; bits <= bits_max; bits++) {
            for (int more = -1; more <= 1; more++) {
                size_t size = (size_t)((1 << bits) + more);
                exchange(size, to, from, true, (unsigned)(bits * 4 + more));
                /* The longest ones take their time. */
                if (bits <= 23)
                    exchange(size, to, from, false, (unsigned)(bits * 4 + more));
            }
        }
    }
    free(outbox);
    free(inbox);
}
