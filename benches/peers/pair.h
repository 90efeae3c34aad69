/* The start of a program whose two sides connect themselves: they are one program that forks, and tell each
 * other their addresses through pipes. It includes work.h, for which a program defines before it includes
 * this file
 *
 *   wait_one(operation)             waits for one operation
 *
 * in place of send_bytes, recv_bytes and wait_all, and after it
 *
 *   connect_sides()                 connects to the other side, with `tell` and `hear`; with `has_rma` for
 *                                   one-sided operations, too
 *   print_version()
 *
 * Licence: MIT or Apache-2.0, as the rest of the project. */
#ifndef PAIR_H
#define PAIR_H

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

static inline void send_bytes(const void *bytes, size_t size, int tag)
{
    wait_one(start_send(bytes, size, tag));
}

static inline void recv_bytes(void *bytes, size_t size, int tag, bool any)
{
    wait_one(start_recv(bytes, size, tag, any));
}

static inline void wait_all(operation *operations, int count)
{
    for (int i = 0; i < count; i++)
        wait_one(operations[i]);
}

#include "work.h"

/* What each rank reads from, and what it writes to. */
static int pipe_in[2], pipe_out[2];

static void tell(const void *bytes, size_t size)
{
    if (write(pipe_out[rank], bytes, size) != (ssize_t)size)
        FAIL("write: %s", strerror(errno));
}

static void hear(void *bytes, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t got = read(pipe_in[rank], (char *)bytes + done, size - done);
        if (got <= 0)
            FAIL("the other side is gone");
        done += (size_t)got;
    }
}

/* The second side moves to another network namespace, if PEERS_OTHER_NETWORK is the file of one. */
static void enter_network(void)
{
    const char *path = getenv("PEERS_OTHER_NETWORK");
    if (rank == 0 || path == NULL)
        return;
    int network = open(path, O_RDONLY | O_CLOEXEC);
    if (network < 0 || setns(network, CLONE_NEWNET) != 0)
        FAIL("%s: %s", path, strerror(errno));
    close(network);
}

/* Whether there are cases of one-sided operations. */
static bool has_rma;

static void connect_sides(void);
static void print_version(void);

int main(int argc, char **argv)
{
    struct arguments a = parse_arguments(argc, argv);
    int status = 0;
    pid_t child;

    for (int reader = 0; reader < 2; reader++) {
        int ends[2];
        if (pipe(ends) != 0)
            FAIL("pipe: %s", strerror(errno));
        pipe_in[reader] = ends[0];
        pipe_out[!reader] = ends[1];
    }
    if ((child = fork()) < 0)
        FAIL("fork: %s", strerror(errno));
    rank = child == 0;
    if (rank == 1)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* A pipe ends when its only writer has ended. */
    close(pipe_in[!rank]);
    close(pipe_out[!rank]);
    pin(a.core[rank]);
    enter_network();
    for (int i = 0; i < a.case_count; i++)
        has_rma |= strncmp(a.cases[i], "rma:", 4) == 0;
    connect_sides();
    if (rank == 0)
        print_version();
    run_all(&a);
    /* Each side keeps its memory until the other side is done with it. */
    tell("", 1);
    hear(&(char){0}, 1);
    if (rank == 1)
        _exit(0);
    if (waitpid(child, &status, 0) != child || status != 0)
        FAIL("the other side ended with status %d", status);
    return 0;
}

#endif
