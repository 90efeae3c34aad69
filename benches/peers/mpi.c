/* The work over MPI: compiled by each implementation's mpicc.
 *
 * Licence: MIT or Apache-2.0, as the rest of the project. */
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

static bool is(const struct work *w, const char *operation)
{
    return strcmp(w->operation, operation) == 0;
}

/* The result of an operation is the data of the next one, as with tagmatch's. A rank that gives the same bytes each time
   measures how well the other's cache keeps them. */
static void swap_boxes(void)
{
    uint8_t *result = inbox;
    inbox = outbox;
    outbox = result;
}

/* `root` is the root of the first broadcast. Roots take turns, so that none runs ahead. The other results are in `outbox`. */
static void collective_calls(const struct work *w, int count, int root)
{
    int size = (int)w->size;
    MPI_Comm copy;
    if (is(w, "barrier")) {
        for (int i = 0; i < count; i++)
            MPI_Barrier(MPI_COMM_WORLD);
    } else if (is(w, "bcast")) {
        for (int i = 0; i < count; i++)
            MPI_Bcast(inbox, size, MPI_BYTE, (root + i) & 1, MPI_COMM_WORLD);
    } else if (is(w, "allreduce")) {
        for (int i = 0; i < count; i++, swap_boxes())
            MPI_Allreduce(outbox, inbox, size / 8, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    } else if (is(w, "alltoall")) {
        for (int i = 0; i < count; i++, swap_boxes())
            MPI_Alltoall(outbox, size, MPI_BYTE, inbox, size, MPI_BYTE, MPI_COMM_WORLD);
    } else if (is(w, "allgather")) {
        for (int i = 0; i < count; i++, swap_boxes())
            MPI_Allgather(outbox, size, MPI_BYTE, inbox, size, MPI_BYTE, MPI_COMM_WORLD);
    } else if (is(w, "dup")) {
        for (int i = 0; i < count; i++) {
            MPI_Comm_dup(MPI_COMM_WORLD, &copy);
            MPI_Comm_free(&copy);
        }
    } else {
        FAIL("%s: no such operation here", w->name);
    }
}

static void collective_batch(const struct work *w, int count)
{
    collective_calls(w, count, 0);
}

/* Checks each result once, at both ranks. */
static void collective_check(const struct work *w)
{
    size_t size = w->size;
    if (2 * size > SIZE_MAX_BYTES || size % 8 != 0)
        FAIL("%s: multiples of 8 bytes would be right", w->name);
    if (is(w, "bcast")) {
        for (int root = 0; root < 2; root++) {
            fill(inbox, size, (unsigned)(rank == root ? 11 : 12));
            collective_calls(w, 1, root);
            check(inbox, size, 11, w->name);
        }
    } else if (is(w, "allreduce")) {
        uint64_t value, sum;
        for (size_t i = 0; i < size; i += 8) {
            value = (i + 1) * (uint64_t)(rank + 1);
            memcpy(outbox + i, &value, 8);
        }
        collective_calls(w, 1, 0);
        for (size_t i = 0; i < size; i += 8) {
            memcpy(&sum, outbox + i, 8);
            if (sum != 3 * (i + 1))
                FAIL("%s: value %zu is wrong", w->name, i / 8);
        }
    } else if (is(w, "alltoall")) {
        /* The seed depends on sender and receiver. */
        for (int to = 0; to < 2; to++)
            fill(outbox + to * size, size, (unsigned)(11 + 2 * rank + to));
        collective_calls(w, 1, 0);
        for (int from = 0; from < 2; from++)
            check(outbox + from * size, size, (unsigned)(11 + 2 * from + rank), w->name);
    } else if (is(w, "allgather")) {
        fill(outbox, size, (unsigned)(11 + rank));
        collective_calls(w, 1, 0);
        for (int from = 0; from < 2; from++)
            check(outbox + from * size, size, (unsigned)(11 + from), w->name);
    } else {
        collective_calls(w, 1, 0);
    }
}

/* Pins before MPI_Init, so that its memory and threads are on the right core. */
static int rank_from_launcher(void)
{
    const char *names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i]) != NULL)
            return atoi(getenv(names[i]));
    FAIL("neither OMPI_COMM_WORLD_RANK nor PMI_RANK is set: to be started by mpirun");
}

/* Barriers of a job with more ranks than cores; the launcher says where the ranks may run. */
static void run_ranks(const struct work *w, double milliseconds)
{
    static struct samples samples;
    if (!is(w, "barrier"))
        FAIL("%s: no such operation here", w->name);
    if (rank == 0)
        print_begin(w->name);
    /* The first pass is warm-up. */
    for (int pass = 0; pass < 2; pass++) {
        begin_samples(&samples);
        for (;;) {
            int count = enough_samples(&samples, pass == 0 ? milliseconds / 4 : milliseconds) ? 0 : w->batch;
            MPI_Bcast(&count, 1, MPI_INT, 0, MPI_COMM_WORLD);
            if (count == 0)
                break;
            double start = now_ns();
            collective_calls(w, count, 0);
            samples.value[samples.count++] = (now_ns() - start) / count;
        }
    }
    if (rank == 0)
        print_samples(w->name, &samples, 0, 0);
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
    struct work first = parse_case(a.cases[0]);
    bool is_pair = first.ranks == 0;

    if (is_pair)
        pin(a.core[expected & 1]);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size != (is_pair ? 2 : first.ranks) || rank != expected)
        FAIL("%d processes, rank %d where the launcher said %d", size, rank, expected);
    /* Some runtimes bind processes in MPI_Init, so pin again. */
    if (is_pair)
        pin(a.core[rank]);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &tag_max, &found);
    if (!found || *tag_max < TAG_FILLER + FILLERS_MAX)
        FAIL("tags end at %d", found ? *tag_max : 0);
    MPI_Get_library_version(version, &length);
    if (rank == 0)
        print_version(version);
    collective.batch = collective_batch;
    collective.check = collective_check;
    if (is_pair)
        run_all(&a);
    else
        run_ranks(&first, a.milliseconds);
    MPI_Finalize();
    return 0;
}
