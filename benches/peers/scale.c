/* A job of many ranks over MPI: the same steps as `benches/peers/tagmatch/src/scale.rs`. Rank 0 prints one line a
 * figure: its name and its value.
 *
 * Licence: MIT or Apache-2.0, as the rest of the project. */
#define _GNU_SOURCE
#include <dirent.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* How often each operation but the first alltoall is measured; the median counts. */
#define ROUNDS 3

#define FAIL(...) (fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), exit(3))

static int rank, size;
static char *given, *taken;

static void print(const char *name, double value)
{
    if (rank != 0)
        return;
    printf("%s %.1f\n", name, value);
    fflush(stdout);
}

static double combine(double value, MPI_Op op)
{
    double all;
    MPI_Allreduce(&value, &all, 1, MPI_DOUBLE, op, MPI_COMM_WORLD);
    return all;
}

static void barrier(void) { MPI_Barrier(MPI_COMM_WORLD); }

static void alltoall(void) { MPI_Alltoall(given, 8, MPI_BYTE, taken, 8, MPI_BYTE, MPI_COMM_WORLD); }

static void dup(void)
{
    MPI_Comm copy;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    MPI_Comm_free(&copy);
}

static void split(void)
{
    MPI_Comm part;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &part);
    MPI_Comm_free(&part);
}

/* Microseconds of the rank for which the call takes longest. */
static double slowest(void (*call)(void))
{
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    call();
    return combine(1e6 * (MPI_Wtime() - start), MPI_MAX);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void median(const char *name, void (*call)(void))
{
    double times[ROUNDS];
    for (int i = 0; i < ROUNDS; i++)
        times[i] = slowest(call);
    qsort(times, ROUNDS, sizeof *times, compare);
    print(name, times[ROUNDS / 2]);
}

/* The number behind `name` in a file of /proc. */
static double kilobytes(const char *path, const char *name)
{
    char line[256];
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, name, strlen(name)) == 0) {
            fclose(file);
            return atof(line + strlen(name));
        }
    FAIL("%s has no %s", path, name);
}

static int descriptors(void)
{
    /* The entries for the folder itself, its parent, and the descriptor by which it is read are none. */
    int count = -3;
    DIR *folder = opendir("/proc/self/fd");
    if (folder == NULL)
        FAIL("can't read /proc/self/fd");
    while (readdir(folder) != NULL)
        count++;
    closedir(folder);
    return count;
}

int main(int argc, char **argv)
{
    const char *begun = getenv("PEERS_BEGUN_US");
    if (begun == NULL)
        FAIL("PEERS_BEGUN_US isn't set: to be started by ci/peers --scale");
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Barrier(MPI_COMM_WORLD);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    print("start_ms", 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec - 1e-3 * atof(begun));

    given = calloc((size_t)size, 8);
    taken = calloc((size_t)size, 8);
    if (given == NULL || taken == NULL)
        FAIL("no memory");
    print("alltoall_first_us", slowest(alltoall));
    median("barrier_us", barrier);
    median("alltoall_us", alltoall);
    median("dup_us", dup);
    median("split_us", split);

    print("pss_kb", combine(kilobytes("/proc/self/smaps_rollup", "Pss:"), MPI_SUM) / size);
    print("shared_kb", kilobytes("/proc/meminfo", "Shmem:"));
    print("descriptors", combine(descriptors(), MPI_MAX));
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
