/* A million messages that nobody has posted a receive for, and then a barrier, which must pass behind them: MPI has no
 * bound of messages that wait (MPI-4.1 section 3.5).
 *
 *   mpirun -n 2 flood [COUNT]
 *
 * Prints "flood: ok", and the memory of the receiving process at the barrier, in kB.
 *
 * Licence: MIT or Apache-2.0, as the rest of the project. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long memory_kb(void)
{
    char line[128];
    long found = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, "VmRSS:", 6) == 0)
            found = atol(line + 6);
    }
    if (file)
        fclose(file);
    return found;
}

int main(int argc, char **argv)
{
    long count = argc > 1 ? atol(argv[1]) : 1000000;
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    long before = memory_kb();
    MPI_Barrier(MPI_COMM_WORLD);
    for (int64_t i = 0; rank == 0 && i < count; i++)
        MPI_Send(&i, 1, MPI_INT64_T, 1, 7, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    long after = memory_kb();
    for (int64_t i = 0; rank == 1 && i < count; i++) {
        int64_t got = -1;
        MPI_Recv(&got, 1, MPI_INT64_T, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (got != i) {
            fprintf(stderr, "flood: message %lld is %lld\n", (long long)i, (long long)got);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    if (rank == 1)
        printf("flood: ok, memory %ld kB, before the messages %ld kB\n", after, before);
    MPI_Finalize();
    return 0;
}
