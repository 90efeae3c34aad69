/* What the machine allows, without any library: two cache lines that go back and forth between the
 * cores, and process_vm_readv(2) of one buffer into another.
 *
 * It takes the same cases as the other programs. A latency becomes a ping-pong of one line per direction; a
 * window becomes as many reads, one after the other.
 *
 * Licence: MIT or Apache-2.0, as the rest of the project. */
#include "measure.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>

static inline void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

/* The lines are two lines apart, since some processors fetch them in pairs. */
struct lines {
    _Alignas(128) atomic_ulong ping;
    _Alignas(128) atomic_ulong pong;
    /* The address of the other process's buffer. */
    uint8_t *_Atomic source;
};

static struct lines *lines;
static uint8_t *destination;
static pid_t child;
static unsigned long turn;

static void await(atomic_ulong *line, unsigned long value)
{
    while (atomic_load_explicit(line, memory_order_acquire) != value)
        pause_briefly();
}

static void answer_forever(void)
{
    for (unsigned long i = 1;; i++) {
        await(&lines->ping, i);
        atomic_store_explicit(&lines->pong, i, memory_order_release);
    }
}

static void pingpong_batch(const struct work *w)
{
    for (int i = 0; i < w->batch; i++) {
        turn++;
        atomic_store_explicit(&lines->ping, turn, memory_order_release);
        await(&lines->pong, turn);
    }
}

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

    lines = mmap(NULL, sizeof *lines, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (lines == MAP_FAILED || (child = fork()) < 0)
        FAIL("%s", strerror(errno));
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pin(a.core[0]);
        uint8_t *source = aligned_bytes(size);
        fill(source, size, 5);
        atomic_store(&lines->source, source);
        answer_forever();
    }
    /* The second core reads from the first one, as in the windows of the other programs. */
    pin(a.core[1]);
    destination = aligned_bytes(size);
    for (int i = 0; i < a.case_count; i++) {
        struct work w = parse_case(a.cases[i]);
        bool latency = strcmp(w.kind, "latency") == 0;
        double operations = (double)w.batch * (latency ? 2 : w.window);
        if (w.size > size || (!latency && strcmp(w.kind, "window") != 0))
            FAIL("%s has no floor", w.name);
        print_begin(w.name);
        if (i == 0) {
            struct work once = {.batch = 1, .window = 1, .size = size};
            pingpong_batch(&once);
            read_batch(&once);
            check(destination, size, 5, w.name);
        }
        for (int pass = 0; pass < 2; pass++) {
            begin_samples(&samples);
            while (!enough_samples(&samples, pass == 0 ? a.milliseconds / 4 : a.milliseconds)) {
                double start = now_ns();
                if (latency)
                    pingpong_batch(&w);
                else
                    read_batch(&w);
                samples.value[samples.count++] = (now_ns() - start) / operations;
            }
        }
        print_samples(w.name, &samples);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return 0;
}
