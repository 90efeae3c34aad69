/* How processes end.
 *
 *   ends killed   rank 1 kills itself while the others wait for its messages: their launcher has to end them
 *   ends leaves   rank 0 sends messages of all sizes, and leaves at once; rank 1 takes them in later
 *
 * Licence: MIT or Apache-2.0, as the rest of the project. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MESSAGES = 200, LARGEST = 60000 };

static int length_of(int message)
{
    return message * 299 % LARGEST;
}

static void fail(const char *what)
{
    fprintf(stderr, "ends: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void killed(int rank)
{
    char byte = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1)
        raise(SIGKILL);
    MPI_Recv(&byte, 1, MPI_CHAR, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    fail("a message came from a process that was killed");
}

static void leaves(int rank)
{
    static char bytes[MESSAGES][LARGEST];
    MPI_Request requests[MESSAGES];
    if (rank == 0) {
        for (int i = 0; i < MESSAGES; i++) {
            memset(bytes[i], i + 1, LARGEST);
            MPI_Isend(bytes[i], length_of(i), MPI_CHAR, 1, i, MPI_COMM_WORLD, &requests[i]);
        }
        MPI_Waitall(MESSAGES, requests, MPI_STATUSES_IGNORE);
    } else if (rank == 1) {
        sleep(1);
        for (int i = 0; i < MESSAGES; i++) {
            MPI_Status status;
            int length;
            MPI_Recv(bytes[i], LARGEST, MPI_CHAR, 0, i, MPI_COMM_WORLD, &status);
            MPI_Get_count(&status, MPI_CHAR, &length);
            if (length != length_of(i))
                fail("a message has another length");
            for (int j = 0; j < length; j++)
                if (bytes[i][j] != (char)(i + 1))
                    fail("a message has other bytes");
        }
        printf("ends: all came\n");
    }
}

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc == 2 && strcmp(argv[1], "killed") == 0)
        killed(rank);
    else if (argc == 2 && strcmp(argv[1], "leaves") == 0)
        leaves(rank);
    else
        fail("killed or leaves");
    MPI_Finalize();
    return 0;
}
