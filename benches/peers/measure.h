/* Time, statistics, pinning, the probe of the distance between both cores, and output: the same in every
 * program.
 *
 * Licence: MIT or Apache-2.0, as the rest of the project. */
#ifndef MEASURE_H
#define MEASURE_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define BATCHES_MIN 5
#define BATCHES_MAX 100000
/* A probe of the distance takes 0.2 to 2 ms. */
#define PROBE_BATCHES 21
#define PROBE_TURNS 100
/* The alignment of all buffers, so that every program has huge pages, or none. */
#define ALIGNMENT (2u << 20)

#define FAIL(...) (fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), exit(3))

/* The arguments of every program: CORE_A CORE_B MILLISECONDS CASE... */
struct arguments {
    int core[2];
    double milliseconds;
    char **cases;
    int case_count;
};

static inline struct arguments parse_arguments(int argc, char **argv)
{
    struct arguments a;
    if (argc < 5)
        FAIL("usage: %s CORE_A CORE_B MILLISECONDS CASE...", argv[0]);
    a.core[0] = atoi(argv[1]);
    a.core[1] = atoi(argv[2]);
    a.milliseconds = atof(argv[3]);
    a.cases = argv + 4;
    a.case_count = argc - 4;
    if (a.milliseconds <= 0)
        FAIL("%s is no duration in milliseconds", argv[3]);
    return a;
}

/* One side of a case; tagmatch/src/case.rs has the grammar. */
struct work {
    const char *name;
    char kind[16];   /* latency, window, buffer, cold, posted, unexpected, collective, ranks, rma */
    char operation[16]; /* of collective cases: barrier, bcast, allreduce, alltoall, dup; of rma: put, get, fadd */
    int ranks;       /* of the job that `ranks` is measured in */
    size_t size;     /* bytes of a message */
    int window;      /* messages before each acknowledgement */
    int batch;       /* round trips, windows or messages that are timed together */
    bool any_source; /* the measured receives take any source */
    bool any_filler; /* the receives that never match take any source */
    int depth;       /* how many receives never match */
};

static inline struct work parse_case(const char *name)
{
    struct work w = {.name = name, .window = 1};
    char source[8] = "exact", filler[8] = "exact";
    if (sscanf(name, "latency:%zu:%7[a-z]:%7[a-z]:%d:%d", &w.size, source, filler, &w.depth, &w.batch) == 5)
        strcpy(w.kind, "latency");
    else if (sscanf(name, "window:%zu:%d:%d", &w.size, &w.window, &w.batch) == 3)
        strcpy(w.kind, "window");
    else if (sscanf(name, "buffer:%zu:%d:%d", &w.size, &w.window, &w.batch) == 3)
        strcpy(w.kind, "buffer");
    else if (sscanf(name, "cold:%zu:%d:%d", &w.size, &w.window, &w.batch) == 3)
        strcpy(w.kind, "cold");
    else if (sscanf(name, "ranks:%15[a-z]:%d:%d", w.operation, &w.ranks, &w.batch) == 3)
        strcpy(w.kind, "ranks");
    else if (sscanf(name, "collective:%15[a-z]:%zu:%d", w.operation, &w.size, &w.batch) == 3)
        strcpy(w.kind, "collective");
    else if (sscanf(name, "rma:%15[a-z]:%zu:%d:%d", w.operation, &w.size, &w.window, &w.batch) == 4)
        strcpy(w.kind, "rma");
    else if (sscanf(name, "posted:%d", &w.batch) == 1)
        strcpy(w.kind, "posted");
    else if (sscanf(name, "unexpected:%d", &w.batch) == 1)
        strcpy(w.kind, "unexpected");
    else
        FAIL("%s is no case", name);
    w.any_source = strcmp(source, "any") == 0;
    w.any_filler = strcmp(filler, "any") == 0;
    if (w.batch < 1 || w.window < 1 || w.depth < 0)
        FAIL("%s is out of range", name);
    return w;
}

static inline double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static inline void pin(int core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        FAIL("can't run on core %d: %s", core, strerror(errno));
}

static inline void *aligned_bytes(size_t size)
{
    void *bytes = aligned_alloc(ALIGNMENT, (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    if (bytes == NULL)
        FAIL("no memory");
    memset(bytes, 1, size);
    return bytes;
}

static inline void fill(uint8_t *bytes, size_t size, unsigned seed)
{
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(seed + i * 7 + i / 251);
}

static inline void check(const uint8_t *bytes, size_t size, unsigned seed, const char *where)
{
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != (uint8_t)(seed + i * 7 + i / 251))
            FAIL("%s: byte %zu of %zu is wrong", where, i, size);
}

/* Bytes of memory, private and shared with other processes, that are resident in this process. Pages of files don't
 * count: the kernel maps a program's code in runs of many pages when it is first used. */
static inline double resident_bytes(void)
{
    char line[128];
    unsigned long anonymous = 0, shared = 0;
    FILE *status = fopen("/proc/self/status", "r");
    if (status == NULL)
        FAIL("can't read /proc/self/status");
    while (fgets(line, sizeof(line), status) != NULL) {
        sscanf(line, "RssAnon: %lu", &anonymous);
        sscanf(line, "RssShmem: %lu", &shared);
    }
    fclose(status);
    if (anonymous == 0)
        FAIL("/proc/self/status is cut short");
    return 1024.0 * (double)(anonymous + shared);
}

/* The mean of each batch. */
struct samples {
    double value[BATCHES_MAX];
    int count;
    double started_ns;
};

static inline void begin_samples(struct samples *s)
{
    s->count = 0;
    s->started_ns = now_ns();
}

static inline bool enough_samples(const struct samples *s, double milliseconds)
{
    if (s->count < BATCHES_MIN)
        return false;
    return s->count == BATCHES_MAX || now_ns() - s->started_ns >= 1e6 * milliseconds;
}

static inline int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The smallest value that at least this share of the samples does not exceed. */
static inline double quantile(const struct samples *s, double share)
{
    int rank = (int)(share * s->count + 0.999999);
    return s->value[rank < 1 ? 0 : rank - 1];
}

/* Two cache lines that go back and forth between the two cores, one per direction. They are two lines apart,
 * since some processors fetch them in pairs. Every pair of processes maps the same file, which ci/peers makes. */
struct lines {
    _Alignas(128) atomic_ulong ping;
    _Alignas(128) atomic_ulong pong;
    /* Of floor.c: the address of the other process's buffer. */
    _Alignas(128) uint8_t *_Atomic source;
};

static struct lines *lines;
/* How often the lines have gone back and forth. */
static unsigned long line_turn;

static inline void map_lines(void)
{
    const char *path = getenv("PEERS_LINES");
    int file = path == NULL ? -1 : open(path, O_RDWR);
    if (file < 0)
        FAIL("PEERS_LINES names no file: to be started by ci/peers");
    lines = mmap(NULL, sizeof *lines, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (lines == MAP_FAILED)
        FAIL("can't map %s: %s", path, strerror(errno));
    close(file);
}

static inline void await_line(atomic_ulong *line, unsigned long value)
{
    while (atomic_load_explicit(line, memory_order_acquire) != value)
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("isb");
#else
        ;
#endif
}

static inline void move_lines(int rank, int count)
{
    for (int i = 0; i < count; i++) {
        line_turn++;
        if (rank != 0)
            await_line(&lines->ping, line_turn);
        atomic_store_explicit(rank == 0 ? &lines->ping : &lines->pong, line_turn, memory_order_release);
        if (rank == 0)
            await_line(&lines->pong, line_turn);
    }
}

/* The distance between both cores, in ns: the median of PROBE_BATCHES means. Both processes call it at the same
 * point. */
static inline double probe(int rank)
{
    double means[PROBE_BATCHES];
    for (int i = 0; i < PROBE_BATCHES; i++) {
        double start = now_ns();
        move_lines(rank, PROBE_TURNS);
        means[i] = (now_ns() - start) / (2 * PROBE_TURNS);
    }
    qsort(means, PROBE_BATCHES, sizeof *means, compare_doubles);
    return means[PROBE_BATCHES / 2];
}

static inline void print_begin(const char *name)
{
    printf("begin %s\n", name);
    fflush(stdout);
}

/* `before` and `after` are the distances that the probes around the samples saw; 0: there was no probe. */
static inline void print_samples(const char *name, struct samples *s, double before, double after)
{
    qsort(s->value, (size_t)s->count, sizeof *s->value, compare_doubles);
    printf("result %s %.3f %.3f %.3f %d %.1f %.1f\n", name, s->value[0], quantile(s, 0.5), quantile(s, 0.9), s->count,
           before, after);
    fflush(stdout);
}

static inline void print_value(const char *name, double value)
{
    printf("result %s %.3f %.3f %.3f 1 0 0\n", name, value, value, value);
    fflush(stdout);
}

#endif
