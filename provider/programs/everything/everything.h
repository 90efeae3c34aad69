/* What all sections of the program share: the ranks, payloads that can be verified, and the way to fail.
 *
 * Licence: MIT or Apache-2.0, as the rest of the project. */
#ifndef EVERYTHING_H
#define EVERYTHING_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Tags above the ones that sections choose for their payloads. */
enum { READY = 30000, GO = 30001 };

/* In MPI_COMM_WORLD. */
extern int rank, ranks;
/* Set by --short: fewer and smaller messages, for more ranks than processors. */
extern bool brief;
/* How many messages and receives wait at once; set by --many, and at least 2000. */
extern int many_messages;

/* The step that runs now. A failure or a hang is reported with it. */
void at(const char *format, ...);
/* Reports a mismatch, and ends all ranks. */
void fail(const char *file, int line, const char *format, ...);
#define CHECK(condition, ...) ((condition) ? (void)0 : fail(__FILE__, __LINE__, __VA_ARGS__))

/* True for the few things that a known bug of the MPI library itself makes impossible; see main.c. */
enum bug { SSEND_TO_MPROBE, PERSISTENT_BSEND, BLOCKING_SSEND };
bool left_out(enum bug bug);

/* Memory for `size` bytes, or the end of the program. */
void *memory(size_t size);
/* Payloads are a function of their seed. */
void fill(void *bytes, size_t size, unsigned seed);
void check(const void *bytes, size_t size, unsigned seed);
/* The seed of message `number` from rank `from` to rank `to`. */
unsigned seed_of(int from, int to, unsigned number);
/* Bytes behind a buffer that no receive may write. */
enum { GUARD = 16 };
void set_guard(void *end);
void check_guard(const void *end);
/* Random numbers from a seed, the same at all ranks. */
uint64_t next_random(uint64_t *state);
double seconds(void);
void check_status(const MPI_Status *status, int source, int tag, size_t size);

static inline void ready(int to)
{
    MPI_Send(NULL, 0, MPI_BYTE, to, READY, MPI_COMM_WORLD);
}

static inline void await_ready(int from)
{
    MPI_Recv(NULL, 0, MPI_BYTE, from, READY, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Runs `both` for all ordered pairs of ranks: each rank is in one pair at a time, and all begin the next one together, so
 * that no wildcard finds a message from elsewhere. */
static inline void for_all_pairs(void (*both)(int from, int to))
{
    for (int distance = 1; distance < 2 * ranks; distance++) {
        int other = rank ^ distance;
        for (int up = 0; up < 2; up++) {
            MPI_Barrier(MPI_COMM_WORLD);
            if (other < ranks)
                both(up == (rank < other) ? rank : other, up == (rank < other) ? other : rank);
        }
    }
}

/* The sections. */
void modes(void);
void order(void);
void probes(void);
void cancels(void);
void truncation(void);
void types(void);
void sizes(void);
void collectives(void);
void collectives_at_once(void);
void communicators(void);
void self(void);
void many(void);
void threads(void);
void one_sided(void);

#endif
