/* Receives that name their source take messages of that source, in every mode of tags: the last rank receives from all
 * others, the highest first, while each of them sends with the same tag. MPI_Ssend ends with the receive of its own message.
 *
 *   mpirun -n 3 senders
 *
 * Prints "senders: ok".
 *
 * Licence: MIT or Apache-2.0, as the rest of the project. */
#include <mpi.h>
#include <stdio.h>

enum { ROUNDS = 50, TAG = 9 };

static int wrong;

static void receive(int source, int round)
{
    int got = -1;
    MPI_Status status;
    MPI_Message message;
    switch (round % 3) {
    case 0:
        MPI_Recv(&got, 1, MPI_INT, source, TAG, MPI_COMM_WORLD, &status);
        break;
    case 1:
        MPI_Probe(source, TAG, MPI_COMM_WORLD, &status);
        MPI_Recv(&got, 1, MPI_INT, source, TAG, MPI_COMM_WORLD, &status);
        break;
    default:
        MPI_Mprobe(source, TAG, MPI_COMM_WORLD, &message, &status);
        MPI_Mrecv(&got, 1, MPI_INT, &message, &status);
    }
    if (got != source * 1000 + round || status.MPI_SOURCE != source)
        wrong++;
}

int main(int argc, char **argv)
{
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int round = 0; round < ROUNDS; round++) {
        int number = rank * 1000 + round;
        if (rank == ranks - 1) {
            for (int source = rank - 1; source >= 0; source--)
                receive(source, round);
        } else if (round % 3 == 0) {
            /* Open MPI 4.1 never completes an MPI_Ssend that a matched probe has found. */
            MPI_Ssend(&number, 1, MPI_INT, ranks - 1, TAG, MPI_COMM_WORLD);
        } else {
            MPI_Send(&number, 1, MPI_INT, ranks - 1, TAG, MPI_COMM_WORLD);
        }
    }
    if (rank == ranks - 1)
        printf("senders: %s, %d of %d wrong\n", wrong ? "FAILED" : "ok", wrong, ROUNDS * (ranks - 1));
    MPI_Finalize();
    return wrong ? 1 : 0;
}
