/* An MPI program that uses all of MPI's point-to-point and collective operations and verifies every payload. It
 * needs MPI 3.1 and nothing that only one library has.
 *
 *   mpirun -n 2 everything [--short] [--threads] [--one-sided] [--many COUNT] [--only SECTION] [--without SECTION]
 *       [--limit SECONDS]
 *
 * --short      fewer and smaller messages, for more ranks than processors
 * --threads    asks for MPI_THREAD_MULTIPLE, and lets threads send and receive at once as well
 * --one-sided  windows as well; a library may have them over some networks only
 * --many       how many messages and receives wait at once; 20000 by default. A transport that searches lists takes
 *              minutes then
 * --only       runs this section alone
 * --without    leaves this section out, and may be repeated
 * --limit      after so many seconds the program ends itself, and names the step that hangs; 120 by default
 *
 * Rank 0 prints a line for each section, and "everything: ok" at the end. The exit code is 0 only then.
 *
 * Licence: MIT or Apache-2.0, as the rest of the project. */
#define _POSIX_C_SOURCE 200809L
#include "everything.h"

#include <signal.h>
#include <stdarg.h>
#include <time.h>
#include <unistd.h>

int rank, ranks;
bool brief;
int many_messages = 20000;
static char step[256] = "start";

void at(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(step, sizeof step, format, arguments);
    va_end(arguments);
}

void fail(const char *file, int line, const char *format, ...)
{
    char text[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "everything: rank %d failed at %s:%d, step '%s': %s\n", rank, file, line, step, text);
    fflush(stderr);
    MPI_Abort(MPI_COMM_WORLD, 1);
    _exit(1);
}

/* Known bugs of MPI libraries themselves, which show over any provider. The program leaves these cases out. */
bool left_out(enum bug bug)
{
#ifdef OPEN_MPI
    const char *mode = getenv("OMPI_MCA_mtl_ofi_tag_mode");
    switch (bug) {
    case SSEND_TO_MPROBE:
        /* Open MPI 4.1: over mtl/ofi, MPI_Mrecv forgets to acknowledge a synchronous send. */
        return OMPI_MAJOR_VERSION == 4;
    case PERSISTENT_BSEND:
        /* Open MPI 4.1: over any transport, what MPI_Start sends may be the message of the start before. */
        return OMPI_MAJOR_VERSION == 4;
    case BLOCKING_SSEND:
        /* Open MPI 4.1 and 5.0: in this mode, MPI_Ssend waits for an acknowledgement of address 0, not of its
         * receiver. */
        return mode && strcmp(mode, "ofi_tag_1") == 0;
    }
#else
    (void)bug;
#endif
    return false;
}

void *memory(size_t size)
{
    void *bytes = malloc(size ? size : 1);
    CHECK(bytes, "no memory for %zu bytes", size);
    return bytes;
}

static uint64_t word(unsigned seed, size_t index)
{
    uint64_t x = (index + 1) * 0x9e3779b97f4a7c15u + seed * 0xff51afd7ed558ccdu;
    return x ^ x >> 29;
}

void fill(void *bytes, size_t size, unsigned seed)
{
    for (size_t i = 0; i < size; i += 8) {
        uint64_t value = word(seed, i / 8);
        memcpy((char *)bytes + i, &value, size - i < 8 ? size - i : 8);
    }
}

void check(const void *bytes, size_t size, unsigned seed)
{
    for (size_t i = 0; i < size; i += 8) {
        uint64_t value = word(seed, i / 8);
        if (memcmp((const char *)bytes + i, &value, size - i < 8 ? size - i : 8) != 0)
            fail(__FILE__, __LINE__, "%zu bytes from seed %u: wrong near byte %zu", size, seed, i);
    }
}

unsigned seed_of(int from, int to, unsigned number)
{
    return (unsigned)(from * 64 + to) * 1000003u + number;
}

void set_guard(void *end)
{
    memset(end, 0xa5, GUARD);
}

void check_guard(const void *end)
{
    for (int i = 0; i < GUARD; i++)
        CHECK(((const unsigned char *)end)[i] == 0xa5, "byte %d behind the buffer was written", i);
}

uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void check_status(const MPI_Status *status, int source, int tag, size_t size)
{
    int count;
    MPI_Get_count(status, MPI_BYTE, &count);
    CHECK(status->MPI_SOURCE == source, "source %d instead of %d", status->MPI_SOURCE, source);
    CHECK(status->MPI_TAG == tag, "tag %d instead of %d", status->MPI_TAG, tag);
    CHECK(count >= 0 && (size_t)count == size, "%d bytes instead of %zu", count, size);
}

static void out_of_time(int signal)
{
    char text[400];
    int length = snprintf(text, sizeof text, "everything: rank %d hangs in step '%s'\n", rank, step);
    (void)signal;
    if (length > 0 && write(2, text, (size_t)length) < 0)
        _exit(5);
    _exit(4);
}

enum when { ALWAYS, WITH_THREADS, WITH_WINDOWS };

static const struct section {
    const char *name;
    void (*run)(void);
    enum when when;
} sections[] = {
    {"modes", modes, ALWAYS},
    {"order", order, ALWAYS},
    {"probes", probes, ALWAYS},
    {"cancels", cancels, ALWAYS},
    {"truncation", truncation, ALWAYS},
    {"types", types, ALWAYS},
    {"sizes", sizes, ALWAYS},
    {"collectives", collectives, ALWAYS},
    {"collectives at once", collectives_at_once, ALWAYS},
    {"communicators", communicators, ALWAYS},
    {"self", self, ALWAYS},
    {"many", many, ALWAYS},
    {"threads", threads, WITH_THREADS},
    {"one-sided", one_sided, WITH_WINDOWS},
};

static size_t number_of(const char *name)
{
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) {
        if (strcmp(sections[i].name, name) == 0)
            return i;
    }
    fprintf(stderr, "everything: no section '%s'\n", name);
    exit(2);
}

int main(int argc, char **argv)
{
    bool wanted[] = {[ALWAYS] = true, [WITH_THREADS] = false, [WITH_WINDOWS] = false};
    const char *only = NULL;
    int limit = 120, ran = 0;
    bool without[sizeof sections / sizeof *sections] = {false};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--short") == 0)
            brief = true;
        else if (strcmp(argv[i], "--threads") == 0)
            wanted[WITH_THREADS] = true;
        else if (strcmp(argv[i], "--one-sided") == 0)
            wanted[WITH_WINDOWS] = true;
        else if (strcmp(argv[i], "--many") == 0 && i + 1 < argc)
            many_messages = atoi(argv[++i]);
        else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc)
            only = argv[++i];
        else if (strcmp(argv[i], "--without") == 0 && i + 1 < argc)
            without[number_of(argv[++i])] = true;
        else if (strcmp(argv[i], "--limit") == 0 && i + 1 < argc)
            limit = atoi(argv[++i]);
        else
            return fprintf(stderr, "everything: no option '%s'\n", argv[i]), 2;
    }
    signal(SIGALRM, out_of_time);
    alarm((unsigned)limit);

    int level = wanted[WITH_THREADS] ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, granted;
    MPI_Init_thread(NULL, NULL, level, &granted);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    CHECK(granted >= level, "thread level %d instead of %d", granted, level);

    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) {
        const struct section *section = &sections[i];
        if (!wanted[section->when] || without[i] || (only && number_of(only) != i))
            continue;
        double began = seconds();
        at("%s", section->name);
        section->run();
        at("barrier after %s", section->name);
        MPI_Barrier(MPI_COMM_WORLD);
        ran++;
        if (rank == 0) {
            printf("everything: %s, %.1f s\n", section->name, seconds() - began);
            fflush(stdout);
        }
    }
    CHECK(ran > 0, "nothing was run");
    at("MPI_Finalize");
    MPI_Finalize();
    if (rank == 0)
        printf("everything: ok\n");
    return 0;
}
