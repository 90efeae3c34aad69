/* The work that every peer does, in terms of a few operations which a program defines before it
 * includes this file:
 *
 *   operation                       an operation under way
 *   send_bytes(buf, size, tag)      sends; returns when buf may be used again
 *   recv_bytes(buf, size, tag, any) receives, from the other side or from any source
 *   start_send, start_recv          begin such a send or receive, and return the operation
 *   wait_all(operations, count)
 *   cancel_all(operations, count)   cancels receives that have not matched
 *   rank                            0 measures, 1 answers
 *
 * and of collective and one-sided operations, if the program has them.
 *
 * benches/peers/tagmatch does the same with tagmatch. Change both together.
 *
 * Licence: MIT or Apache-2.0, as the rest of the project. */
#ifndef WORK_H
#define WORK_H

enum { TAG_PING = 1, TAG_PONG, TAG_DATA, TAG_ACK, TAG_CONTROL, TAG_LAST, TAG_FILLER = 1000 };
enum { SIZE_MAX_BYTES = 4 << 20, WINDOW_MAX = 512, FILLERS_MAX = 1 << 20 };
/* Bytes of the memory through which the buffers of cold cases move: more than a core's caches hold. */
enum { COLD_BYTES = 64 << 20 };
/* Windows that touch all of a transport's buffers before memory is measured. */
enum { TOUCH_WINDOWS = 400 };

static uint8_t *outbox, *inbox;
static operation window_operations[WINDOW_MAX];

/* The receives that never match. They are posted on both sides, so that each half of a round trip passes
 * them. */
static operation *fillers;
static int filler_count;
static bool fillers_any;
static uint64_t filler_inbox;

static void set_fillers(int depth, bool any)
{
    if (depth < filler_count || any != fillers_any) {
        cancel_all(fillers, filler_count);
        filler_count = 0;
        fillers_any = any;
    }
    while (filler_count < depth) {
        fillers[filler_count] = start_recv(&filler_inbox, sizeof filler_inbox, TAG_FILLER + filler_count, any);
        filler_count++;
    }
}

static void latency_batch(const struct work *w, int count)
{
    if (rank == 0) {
        for (int i = 0; i < count; i++) {
            send_bytes(outbox, w->size, TAG_PING);
            recv_bytes(inbox, w->size, TAG_PONG, w->any_source);
        }
    } else {
        for (int i = 0; i < count; i++) {
            recv_bytes(inbox, w->size, TAG_PING, w->any_source);
            send_bytes(outbox, w->size, TAG_PONG);
        }
    }
}

static void window_batch(const struct work *w, int count)
{
    uint32_t ack = 1;
    for (int i = 0; i < count; i++) {
        if (rank == 0) {
            for (int j = 0; j < w->window; j++)
                window_operations[j] = start_send(outbox, w->size, TAG_DATA);
            wait_all(window_operations, w->window);
            recv_bytes(&ack, sizeof ack, TAG_ACK, false);
        } else {
            for (int j = 0; j < w->window; j++)
                window_operations[j] = start_recv(inbox, w->size, TAG_DATA, false);
            wait_all(window_operations, w->window);
            send_bytes(&ack, sizeof ack, TAG_ACK);
        }
    }
}

/* Memory through which the buffers of cold cases move, made by the first of them. */
struct cold {
    uint8_t *bytes;
    size_t next;
};
static struct cold cold_outbox, cold_inbox;

/* The next buffer; buffers begin at cache lines. */
static uint8_t *next_cold(struct cold *cold, size_t size)
{
    size = (size + 63) / 64 * 64;
    if (cold->bytes == NULL)
        cold->bytes = aligned_bytes(COLD_BYTES);
    if (cold->next + size > COLD_BYTES)
        cold->next = 0;
    cold->next += size;
    return cold->bytes + cold->next - size;
}

/* Reads what a receive has written, as the program that wanted the data does. The compiler can't leave it out. */
volatile uint64_t data_sum;
static void read_data(const uint8_t *bytes, size_t size)
{
    uint64_t words = 0, word;
    for (size_t i = 0; i + sizeof word <= size; i += sizeof word) {
        memcpy(&word, bytes + i, sizeof word);
        words += word;
    }
    data_sum = words;
}

/* Round trips (window 1), or windows with an acknowledgement, in which each message has another buffer, and the data
 * are read after they have arrived. */
static void cold_batch(const struct work *w, int count)
{
    static uint8_t *inboxes[WINDOW_MAX];
    uint32_t ack = 1;
    for (int i = 0; i < count; i++) {
        for (int turn = 0; turn < (w->window == 1 ? 2 : 1); turn++) {
            if (rank == turn) {
                for (int j = 0; j < w->window; j++)
                    window_operations[j] = start_send(next_cold(&cold_outbox, w->size), w->size, TAG_DATA);
                wait_all(window_operations, w->window);
            } else {
                for (int j = 0; j < w->window; j++) {
                    inboxes[j] = next_cold(&cold_inbox, w->size);
                    window_operations[j] = start_recv(inboxes[j], w->size, TAG_DATA, false);
                }
                wait_all(window_operations, w->window);
                for (int j = 0; j < w->window; j++)
                    read_data(inboxes[j], w->size);
            }
        }
        if (w->window == 1)
            continue;
        if (rank == 0)
            recv_bytes(&ack, sizeof ack, TAG_ACK, false);
        else
            send_bytes(&ack, sizeof ack, TAG_ACK);
    }
}

/* Set by a program that has collective operations. */
static struct {
    void (*batch)(const struct work *, int);
    void (*check)(const struct work *);
} collective;

/* Set by a program that has one-sided operations, with the memory that the other side accesses. */
static struct {
    uint8_t *region;
    void (*begin)(void); /* makes the region */
    operation (*put)(const void *bytes, size_t size);
    operation (*get)(void *bytes, size_t size);
    operation (*fetch_add)(uint64_t *old);
    void (*flush)(void); /* until all puts are visible to the other side's processor */
    void (*progress)(void);
} one_sided;

/* Puts go back and forth, each of them noticed by its last byte. */
static void put_batch(const struct work *w, int count)
{
    static uint8_t turn;
    volatile uint8_t *last = one_sided.region + w->size - 1;
    for (int i = 0; i < count; i++) {
        turn++;
        for (int side = 0; side < 2; side++) {
            if (rank == side) {
                outbox[w->size - 1] = turn;
                wait_one(one_sided.put(outbox, w->size));
            } else {
                while (*last != turn)
                    one_sided.progress();
            }
        }
    }
}

/* Windows of operations on the other side's region, which makes progress until a message says that they have ended. */
static void rma_batch(const struct work *w, int count)
{
    static uint64_t old;
    uint32_t ack = 1;
    bool put = strcmp(w->operation, "put") == 0, get = strcmp(w->operation, "get") == 0;
    if (put && w->window == 1) {
        put_batch(w, count);
        return;
    }
    if (rank != 0) {
        recv_bytes(&ack, sizeof ack, TAG_ACK, false);
        return;
    }
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < w->window; j++)
            window_operations[j] = put   ? one_sided.put(outbox, w->size)
                                   : get ? one_sided.get(inbox, w->size)
                                         : one_sided.fetch_add(&old);
        wait_all(window_operations, w->window);
        if (put)
            one_sided.flush();
    }
    send_bytes(&ack, sizeof ack, TAG_ACK);
}

/* Both sides agree on how many operations the next batch has; 0 ends the case. This is also a barrier. */
static int agree(int count)
{
    int32_t number = count;
    if (rank == 0) {
        send_bytes(&number, sizeof number, TAG_CONTROL);
        recv_bytes(&number, sizeof number, TAG_CONTROL, false);
    } else {
        recv_bytes(&number, sizeof number, TAG_CONTROL, false);
        send_bytes(&number, sizeof number, TAG_CONTROL);
    }
    return number;
}

static void check_bytes(const struct work *w)
{
    fill(outbox, w->size, (unsigned)rank + 11);
    memset(inbox, 0, w->size);
    latency_batch(w, 1);
    check(inbox, w->size, (unsigned)!rank + 11, w->name);
}

/* Checks what two operations of the case do. */
static void check_rma(const struct work *w)
{
    struct work once = *w;
    if (one_sided.begin == NULL)
        FAIL("%s: no one-sided operations here", w->name);
    if (one_sided.region == NULL)
        one_sided.begin();
    once.window = 2;
    if (rank == 1)
        fill(one_sided.region, w->size, 12);
    fill(outbox, w->size, 11);
    memset(inbox, 0, w->size);
    agree(1);
    rma_batch(&once, 1);
    agree(1);
    if (rank == 0 && strcmp(w->operation, "get") == 0)
        check(inbox, w->size, 12, w->name);
    if (rank == 1 && strcmp(w->operation, "put") == 0)
        check(one_sided.region, w->size, 11, w->name);
    if (rank == 1 && strcmp(w->operation, "fadd") == 0) {
        uint64_t before, after;
        memcpy(&after, one_sided.region, sizeof after);
        fill((uint8_t *)&before, sizeof before, 12);
        if (after != before + 2)
            FAIL("%s: the counter is wrong", w->name);
    }
    memset(one_sided.region, 0, w->size);
    agree(1);
}

static void run_timed(const struct work *w, double milliseconds)
{
    static struct samples samples;
    bool latency = strcmp(w->kind, "latency") == 0, together = strcmp(w->kind, "collective") == 0;
    bool cold = strcmp(w->kind, "cold") == 0, rma = strcmp(w->kind, "rma") == 0;
    bool turns = latency || (w->window == 1 && (cold || (rma && strcmp(w->operation, "put") == 0)));
    void (*batch)(const struct work *, int) = latency ? latency_batch : together ? collective.batch
                                            : cold ? cold_batch : rma ? rma_batch : window_batch;
    /* A latency is half a round trip. */
    double operations = (double)w->batch * (turns ? 2 : w->window);

    if (batch == NULL)
        FAIL("%s: no collective operations here", w->name);
    set_fillers(w->depth, w->any_filler);
    if (together)
        collective.check(w);
    else if (rma)
        check_rma(w);
    else
        check_bytes(w);
    if (rank == 0)
        print_begin(w->name);
    double before = probe(rank);
    if (rank != 0) {
        for (int count; (count = agree(0)) > 0;)
            batch(w, count);
        probe(rank);
        return;
    }
    /* There are two passes; the first one is shorter, for warm-up. */
    for (int pass = 0; pass < 2; pass++) {
        begin_samples(&samples);
        while (!enough_samples(&samples, pass == 0 ? milliseconds / 4 : milliseconds)) {
            agree(w->batch);
            double start = now_ns();
            batch(w, w->batch);
            samples.value[samples.count++] = (now_ns() - start) / operations;
        }
    }
    agree(0);
    print_samples(w->name, &samples, before, probe(rank));
}

/* Growth of the resident memory of rank 1, per receive or message, with handles and without the bytes that are
 * received. */
static void run_memory(const struct work *w)
{
    struct work touch = {.size = 8, .window = 64};
    double growth = 0;
    if (w->batch > FILLERS_MAX)
        FAIL("%s: at most %d", w->name, FILLERS_MAX);
    if (rank == 0)
        print_begin(w->name);
    set_fillers(0, false);
    window_batch(&touch, TOUCH_WINDOWS);
    touch.window = 1;
    window_batch(&touch, TOUCH_WINDOWS);
    if (strcmp(w->kind, "posted") == 0 && rank == 1) {
        double before = resident_bytes();
        set_fillers(w->batch, false);
        growth = resident_bytes() - before;
        set_fillers(0, false);
    } else if (strcmp(w->kind, "unexpected") == 0) {
        double before = resident_bytes();
        agree(1);
        if (rank == 0) {
            for (int i = 0; i < w->batch; i++)
                send_bytes(outbox, 8, TAG_FILLER + i);
            send_bytes(outbox, 8, TAG_LAST);
        } else {
            /* Messages don't overtake each other: once this one has arrived, the others have, too. */
            recv_bytes(inbox, 8, TAG_LAST, false);
            growth = resident_bytes() - before;
            for (int i = 0; i < w->batch; i++)
                recv_bytes(inbox, 8, TAG_FILLER + i, false);
        }
    }
    if (rank == 1) {
        send_bytes(&growth, sizeof growth, TAG_DATA);
    } else {
        recv_bytes(&growth, sizeof growth, TAG_DATA, false);
        print_value(w->name, growth / w->batch);
    }
}

static void run_all(const struct arguments *a)
{
    map_lines();
    outbox = aligned_bytes(SIZE_MAX_BYTES);
    inbox = aligned_bytes(SIZE_MAX_BYTES);
    /* This memory isn't touched before it is used, since handles are part of what a receive takes. */
    fillers = calloc(FILLERS_MAX, sizeof *fillers);
    if (fillers == NULL)
        FAIL("no memory");
    for (int i = 0; i < a->case_count; i++) {
        struct work w = parse_case(a->cases[i]);
        if (w.size > SIZE_MAX_BYTES || w.window > WINDOW_MAX || w.depth > FILLERS_MAX)
            FAIL("%s is too large", w.name);
        if (strcmp(w.kind, "posted") == 0 || strcmp(w.kind, "unexpected") == 0)
            run_memory(&w);
        else
            run_timed(&w, a->milliseconds);
    }
    set_fillers(0, false);
    agree(0);
}

#endif
