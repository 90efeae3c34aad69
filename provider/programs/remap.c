/* Memory that a program unmaps between two messages, and maps anew at the same address: the next message has what is
 * there by then. A library that still has the old pages registered would send their bytes, or receive into them.
 *
 *   mpirun -n 2 remap
 *
 * Licence: MIT or Apache-2.0, as the rest of the project. */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { ROUNDS = 12, LENGTH_MAX = 1 << 20 };

static unsigned char byte_of(int round, size_t at)
{
    return (unsigned char)((size_t)round * 37 + at * 11 + (at >> 12) + 1);
}

/* Other pages, in the place of those at `memory` if there are some. */
static unsigned char *renew(unsigned char *memory)
{
    void *pages = mmap(NULL, LENGTH_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory && pages != MAP_FAILED)
        pages = mremap(pages, LENGTH_MAX, LENGTH_MAX, MREMAP_MAYMOVE | MREMAP_FIXED, memory);
    if (pages == MAP_FAILED)
        MPI_Abort(MPI_COMM_WORLD, 2);
    return pages;
}

int main(int argc, char **argv)
{
    static const int lengths[] = {100, 4096, 20000, LENGTH_MAX};
    int rank;
    unsigned char *memory = NULL;
    MPI_Request request;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int round = 0; round < ROUNDS; round++) {
        int length = lengths[round % 4], sends = (round / 4 + rank) % 2;
        memory = renew(memory);
        if (sends) {
            for (int at = 0; at < length; at++)
                memory[at] = byte_of(round, (size_t)at);
        } else {
            MPI_Irecv(memory, length, MPI_BYTE, 1 - rank, round, MPI_COMM_WORLD, &request);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        if (sends)
            MPI_Isend(memory, length, MPI_BYTE, 1 - rank, round, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (int at = 0; at < length; at++) {
            if (memory[at] != byte_of(round, (size_t)at)) {
                fprintf(stderr, "remap: rank %d, round %d, %d bytes: byte %d is wrong\n", rank, round, length, at);
                MPI_Abort(MPI_COMM_WORLD, 1);
            }
        }
    }
    if (rank == 0)
        printf("remap: ok\n");
    MPI_Finalize();
    return 0;
}
