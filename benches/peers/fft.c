/* FFTW's transform of a cube, forth and back, as often as the argument says, by all ranks: each transform exchanges the
 * whole cube by an all-to-all.
 *
 * Licence: MIT or Apache-2.0, as the rest of the project. */
#include <fftw3-mpi.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIDE = 128 };

int main(int argc, char **argv)
{
    ptrdiff_t local, first, bytes;
    double worst = 0, all;
    int rank, transforms = argc > 1 ? atoi(argv[1]) : 0;
    MPI_Init(&argc, &argv);
    fftw_mpi_init();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    bytes = fftw_mpi_local_size_3d(SIDE, SIDE, SIDE, MPI_COMM_WORLD, &local, &first);
    fftw_complex *cube = fftw_alloc_complex((size_t)bytes);
    fftw_plan forth = fftw_mpi_plan_dft_3d(SIDE, SIDE, SIDE, cube, cube, MPI_COMM_WORLD, FFTW_FORWARD, FFTW_ESTIMATE);
    fftw_plan back = fftw_mpi_plan_dft_3d(SIDE, SIDE, SIDE, cube, cube, MPI_COMM_WORLD, FFTW_BACKWARD, FFTW_ESTIMATE);
    for (ptrdiff_t i = 0; i < local * SIDE * SIDE; i++) {
        cube[i][0] = (double)((first * SIDE * SIDE + i) % 1009);
        cube[i][1] = 0;
    }
    for (int turn = 0; turn < transforms; turn++) {
        fftw_execute(forth);
        fftw_execute(back);
        for (ptrdiff_t i = 0; i < local * SIDE * SIDE; i++) {
            cube[i][0] /= SIDE * SIDE * SIDE;
            cube[i][1] /= SIDE * SIDE * SIDE;
        }
    }
    for (ptrdiff_t i = 0; i < local * SIDE * SIDE; i++)
        worst = fmax(worst, fabs(cube[i][0] - (double)((first * SIDE * SIDE + i) % 1009)) + fabs(cube[i][1]));
    MPI_Allreduce(&worst, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (rank == 0)
        printf("largest error %g\n", all);
    MPI_Finalize();
    return all < 1e-6 ? 0 : 1;
}
