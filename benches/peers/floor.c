/* What the machine allows, without any library: two cache lines that go back and forth between the
 * cores, and process_vm_readv(2) of one buffer into another.
 *
 * It takes the same cases as the other programs. A latency becomes a ping-pong of one line per direction; a
 * window becomes as many reads, one after the other.
 *
 * Licence: MIT or Apache-2.0, as the rest of the project. */
#include "measure.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>

static uint8_t *destination;
static pid_t child;

static void read_batch(const struct work *w)
{
    for (int i = 0; i < w->batch * w->window; i++) {
        struct iovec here = {destination, w->size}, there = {atomic_load(&lines->source), w->size};
        ssize_t got = process_vm_readv(child, &here, 1, &there, 1, 0);
        if (got != (ssize_t)w->size)
            FAIL("process_vm_readv: %s", got < 0 ? strerror(errno) : "cut short");
    }
}

int main(int argc, char **argv)
{
    static struct samples samples;
    struct arguments a = parse_arguments(argc, argv);
    size_t size = 4 << 20;

    map_lines();
    if ((child = fork()) < 0)
        FAIL("%s", strerror(errno));
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pin(a.core[0]);
        uint8_t *source = aligned_bytes(size);
        fill(source, size, 5);
        atomic_store(&lines->source, source);
        for (;;)
            move_lines(1, 1);
    }
    /* The second core reads from the first one, as in the windows of the other programs. */
    pin(a.core[1]);
    destination = aligned_bytes(size);
    for (int i = 0; i < a.case_count; i++) {
        struct work w = parse_case(a.cases[i]);
        bool latency = strcmp(w.kind, "latency") == 0;
        double operations = (double)w.batch * (latency ? 2 : w.window);
        if (w.size > size || (!latency && strcmp(w.kind, "window") != 0 && strcmp(w.kind, "buffer") != 0))
            FAIL("%s has no floor", w.name);
        print_begin(w.name);
        if (i == 0) {
            struct work once = {.batch = 1, .window = 1, .size = size};
            move_lines(0, 1);
            read_batch(&once);
            check(destination, size, 5, w.name);
        }
        double before = probe(0);
        for (int pass = 0; pass < 2; pass++) {
            begin_samples(&samples);
            while (!enough_samples(&samples, pass == 0 ? a.milliseconds / 4 : a.milliseconds)) {
                double start = now_ns();
                if (latency)
                    move_lines(0, w.batch);
                else
                    read_batch(&w);
                samples.value[samples.count++] = (now_ns() - start) / operations;
            }
        }
        print_samples(w.name, &samples, before, probe(0));
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return 0;
}
