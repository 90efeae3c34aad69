/* Wildcards, and the order of messages.
 *
 * Licence: MIT or Apache-2.0, as the rest of the project. */
#include "everything.h"

enum { MESSAGES = 400, RECEIVES_MAX = 2 * MESSAGES, TAGS = 4 };

/* Sizes by message, so that short and long protocols alternate. */
static size_t size_of(unsigned number)
{
    static const size_t sizes[] = {8, 0, 64, 5000, 1, 300, 100000, 8, 17, 2048};
    return sizes[number % 10];
}

enum { SIZE_MAX_HERE = 100000 };

/* What both sides of a pair know: tags of messages, patterns of receives, and which message each receive takes. With one
 * source that does not depend on time: the oldest receive takes the oldest message that it matches, and the
 * rest follows in the same way. */
struct plan {
    int messages;
    int tag[RECEIVES_MAX];
    int pattern[RECEIVES_MAX]; /* a tag, or MPI_ANY_TAG */
    int source_any[RECEIVES_MAX];
    int message_of[RECEIVES_MAX];
};

static void make_plan(struct plan *plan, uint64_t seed, int source)
{
    bool taken[RECEIVES_MAX] = {false};
    int receives = MESSAGES;
    for (int i = 0; i < MESSAGES; i++) {
        plan->tag[i] = (int)(next_random(&seed) % TAGS);
        plan->pattern[i] = next_random(&seed) % 3 == 0 ? MPI_ANY_TAG : (int)(next_random(&seed) % TAGS);
        plan->source_any[i] = next_random(&seed) % 2 ? MPI_ANY_SOURCE : source;
    }
    plan->messages = MESSAGES;
    for (int r = 0; r < receives; r++) {
        int m = 0;
        while (m < plan->messages && (taken[m] || (plan->pattern[r] != MPI_ANY_TAG && plan->pattern[r] != plan->tag[m])))
            m++;
        /* A receive without a message gets one more at the end. */
        if (m == plan->messages)
            plan->tag[plan->messages++] = plan->pattern[r];
        taken[m] = true;
        plan->message_of[r] = m;
    }
    /* Messages without a receive get one more at the end. */
    for (int m = 0; m < plan->messages; m++) {
        if (taken[m])
            continue;
        plan->pattern[receives] = MPI_ANY_TAG;
        plan->source_any[receives] = MPI_ANY_SOURCE;
        plan->message_of[receives++] = m;
    }
    CHECK(receives == plan->messages, "the plan is wrong: %d receives, %d messages", receives, plan->messages);
}

static struct plan plan;
static MPI_Request requests[RECEIVES_MAX];
static MPI_Status statuses[RECEIVES_MAX];

enum timing { POSTED_FIRST, SENT_FIRST, TOGETHER, TIMINGS };
static const char *const timing_names[TIMINGS] = {"receives first", "messages first", "both at once"};

static void planned(int from, int to)
{
    static char *boxes[RECEIVES_MAX];
    for (int timing = 0; timing < TIMINGS; timing++) {
        make_plan(&plan, seed_of(from, to, (unsigned)timing), from);
        at("planned matches, %s, %d to %d", timing_names[timing], from, to);
        for (int i = 0; i < plan.messages; i++)
            boxes[i] = memory(SIZE_MAX_HERE / 10 + (rank == from ? size_of((unsigned)i) : SIZE_MAX_HERE));
        if (rank == from) {
            if (timing == POSTED_FIRST)
                await_ready(to);
            for (int i = 0; i < plan.messages; i++) {
                size_t size = size_of((unsigned)i);
                fill(boxes[i], size, seed_of(from, to, (unsigned)i));
                MPI_Isend(boxes[i], (int)size, MPI_BYTE, to, plan.tag[i], MPI_COMM_WORLD, &requests[i]);
            }
            if (timing == SENT_FIRST)
                ready(to);
            MPI_Waitall(plan.messages, requests, MPI_STATUSES_IGNORE);
        } else {
            if (timing == SENT_FIRST)
                await_ready(from);
            for (int i = 0; i < plan.messages; i++)
                MPI_Irecv(boxes[i], SIZE_MAX_HERE, MPI_BYTE, plan.source_any[i], plan.pattern[i], MPI_COMM_WORLD,
                          &requests[i]);
            if (timing == POSTED_FIRST)
                ready(from);
            MPI_Waitall(plan.messages, requests, statuses);
            for (int i = 0; i < plan.messages; i++) {
                int message = plan.message_of[i];
                size_t size = size_of((unsigned)message);
                check_status(&statuses[i], from, plan.tag[message], size);
                check(boxes[i], size, seed_of(from, to, (unsigned)message));
            }
        }
        for (int i = 0; i < plan.messages; i++)
            free(boxes[i]);
    }
}

/* All ranks, the receiver included, send to one. Messages of each source, or of each source and tag, arrive in order. */
static void fan_in(int receiver, bool any_tag)
{
    enum { EACH = 300 };
    static char out[EACH][512], in[512];
    at("fan-in to %d, %s", receiver, any_tag ? "any tag" : "one tag after the other");
    for (unsigned i = 0; i < EACH; i++) {
        fill(out[i], sizeof out[i], seed_of(rank, receiver, i));
        MPI_Isend(out[i], (int)(i % 500), MPI_BYTE, receiver, (int)(i % 3), MPI_COMM_WORLD, &requests[i]);
    }
    if (rank == receiver) {
        int *next = memory(sizeof *next * (size_t)ranks * 3);
        for (int i = 0; i < ranks * 3; i++)
            next[i] = any_tag ? 0 : i % 3;
        for (int i = 0; i < EACH * ranks; i++) {
            MPI_Status status;
            int wanted = any_tag ? MPI_ANY_TAG : i / (EACH / 3 * ranks);
            MPI_Recv(in, sizeof in, MPI_BYTE, MPI_ANY_SOURCE, wanted, MPI_COMM_WORLD, &status);
            int from = status.MPI_SOURCE;
            int *number = &next[from * 3 + (any_tag ? 0 : wanted)];
            check_status(&status, from, *number % 3, (size_t)(*number % 500));
            check(in, (size_t)(*number % 500), seed_of(from, receiver, (unsigned)*number));
            *number += any_tag ? 1 : 3;
        }
        free(next);
    }
    MPI_Waitall(EACH, requests, MPI_STATUSES_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
}

void order(void)
{
    for_all_pairs(planned);
    for (int receiver = 0; receiver < ranks; receiver++) {
        fan_in(receiver, true);
        fan_in(receiver, false);
    }
}
