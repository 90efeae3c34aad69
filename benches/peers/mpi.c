/* The work over MPI: compiled by each implementation's mpicc.
 *
 * Copyright: MIT or Apache-2.0, as the rest of the repository. */
#include "measure.h"

#include <mpi.h>

typedef MPI_Request operation;

static int rank;

static inline void send_bytes(const void *bytes, size_t size, int tag)
{
    MPI_Send(bytes, (int)size, MPI_BYTE, !rank, tag, MPI_COMM_WORLD);
}

static inline void recv_bytes(void *bytes, size_t size, int tag, bool any)
{
    MPI_Recv(bytes, (int)size, MPI_BYTE, any ? MPI_ANY_SOURCE : !rank, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static inline operation start_send(const void *bytes, size_t size, int tag)
{
    MPI_Request request;
    MPI_Isend(bytes, (int)size, MPI_BYTE, !rank, tag, MPI_COMM_WORLD, &request);
    return request;
}

static inline operation start_recv(void *bytes, size_t size, int tag, bool any)
{
    MPI_Request request;
    MPI_Irecv(bytes, (int)size, MPI_BYTE, any ? MPI_ANY_SOURCE : !rank, tag, MPI_COMM_WORLD, &request);
    return request;
}

/* MPICH's MPI_STATUSES_IGNORE is the address 1, which GCC takes for an array too small. */
#pragma GCC diagnostic ignored "-Wstringop-overflow"
static inline void wait_all(operation *operations, int count)
{
    MPI_Waitall(count, operations, MPI_STATUSES_IGNORE);
}

static inline void cancel_all(operation *operations, int count)
{
    for (int i = 0; i < count; i++) {
        MPI_Cancel(&operations[i]);
        MPI_Wait(&operations[i], MPI_STATUS_IGNORE);
    }
}

#include "work.h"

/* Before MPI_Init, so that whatever it allocates and starts is on the right core. */
static int rank_from_launcher(void)
{
    const char *names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i]) != NULL)
            return atoi(getenv(names[i])) & 1;
    FAIL("neither OMPI_COMM_WORLD_RANK nor PMI_RANK is set: to be started by mpirun");
}

/* The first line up to a comma; MPICH writes "MPICH Version:<tab>4.0.2". */
static void print_version(char *version)
{
    version[strcspn(version, "\n,")] = 0;
    for (char *c = version; *c != 0; c++)
        if (*c == '\t')
            *c = ' ';
    printf("version %s\n", version);
}

int main(int argc, char **argv)
{
    struct arguments a = parse_arguments(argc, argv);
    int size, length, found, *tag_max;
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int expected = rank_from_launcher();

    pin(a.core[expected]);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size != 2 || rank != expected)
        FAIL("%d processes, rank %d where the launcher said %d", size, rank, expected);
    /* Some runtimes bind in MPI_Init. */
    pin(a.core[rank]);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &tag_max, &found);
    if (!found || *tag_max < TAG_FILLER + FILLERS_MAX)
        FAIL("tags end at %d", found ? *tag_max : 0);
    MPI_Get_library_version(version, &length);
    if (rank == 0)
        print_version(version);
    run_all(&a);
    MPI_Finalize();
    return 0;
}
