/* All collective operations, blocking and started, with results that each rank computes for itself.
 *
 * Licence: MIT or Apache-2.0, as the rest of the project. */
#include "everything.h"

/* The communicator that a case runs in. */
static MPI_Comm comm;
static int me, all;
/* Whether operations are started and waited for. */
static bool started;
static MPI_Request request;

#define RUN(blocking, starting, ...) \
    (started ? (starting(__VA_ARGS__, &request), MPI_Wait(&request, MPI_STATUS_IGNORE)) : blocking(__VA_ARGS__))

/* Value `i` of what rank `from` has for rank `to`. */
static int value(int from, int to, int i)
{
    return from * 1000003 + to * 10007 + i;
}

static int *out, *in;

static void set(int *at_ints, int count, int from, int to)
{
    for (int i = 0; i < count; i++)
        at_ints[i] = value(from, to, i);
}

static void check_ints(const int *at_ints, int count, int from, int to)
{
    for (int i = 0; i < count; i++)
        CHECK(at_ints[i] == value(from, to, i), "int %d of %d, from %d to %d, is wrong", i, count, from, to);
}

/* For the forms with a count per rank: rank r has count + r, with a gap of one int behind. */
static int *counts, *places;

static int count_of(int r, int count)
{
    return count ? count + r : r % 2;
}

static void set_counts(int count)
{
    for (int r = 0, place = 0; r < all; r++) {
        counts[r] = count_of(r, count);
        places[r] = place;
        place += counts[r] + 1;
    }
}

static void rooted(int count, int root)
{
    at("MPI_Bcast of %d ints, root %d%s", count, root, started ? ", started" : "");
    set(in, count, me == root ? root : -1, 0);
    RUN(MPI_Bcast, MPI_Ibcast, in, count, MPI_INT, root, comm);
    check_ints(in, count, root, 0);

    at("MPI_Gather of %d ints, root %d%s", count, root, started ? ", started" : "");
    set(out, count, me, root);
    RUN(MPI_Gather, MPI_Igather, out, count, MPI_INT, in, count, MPI_INT, root, comm);
    for (int r = 0; r < all && me == root; r++)
        check_ints(in + r * count, count, r, root);

    at("MPI_Gatherv of %d ints, root %d%s", count, root, started ? ", started" : "");
    set_counts(count);
    set(out, counts[me], me, root);
    RUN(MPI_Gatherv, MPI_Igatherv, out, counts[me], MPI_INT, in, counts, places, MPI_INT, root, comm);
    for (int r = 0; r < all && me == root; r++)
        check_ints(in + places[r], counts[r], r, root);

    at("MPI_Scatter of %d ints, root %d%s", count, root, started ? ", started" : "");
    for (int r = 0; r < all; r++)
        set(out + r * count, count, me, r);
    RUN(MPI_Scatter, MPI_Iscatter, out, count, MPI_INT, in, count, MPI_INT, root, comm);
    check_ints(in, count, root, me);

    at("MPI_Scatterv of %d ints, root %d%s", count, root, started ? ", started" : "");
    for (int r = 0; r < all; r++)
        set(out + places[r], counts[r], me, r);
    RUN(MPI_Scatterv, MPI_Iscatterv, out, counts, places, MPI_INT, in, counts[me], MPI_INT, root, comm);
    check_ints(in, counts[me], root, me);

    at("MPI_Reduce of %d ints, root %d%s", count, root, started ? ", started" : "");
    set(out, count, me, 0);
    RUN(MPI_Reduce, MPI_Ireduce, out, in, count, MPI_INT, MPI_SUM, root, comm);
    for (int i = 0; i < count && me == root; i++)
        CHECK(in[i] == all * value(0, 0, i) + value(all * (all - 1) / 2, 0, 0), "sum %d is wrong", i);
}

static void to_all(int count)
{
    at("MPI_Allgather of %d ints%s", count, started ? ", started" : "");
    set(out, count, me, 0);
    RUN(MPI_Allgather, MPI_Iallgather, out, count, MPI_INT, in, count, MPI_INT, comm);
    for (int r = 0; r < all; r++)
        check_ints(in + r * count, count, r, 0);

    at("MPI_Allgather in place, %d ints%s", count, started ? ", started" : "");
    memset(in, 0, sizeof(int) * (size_t)(all * count));
    set(in + me * count, count, me, 1);
    RUN(MPI_Allgather, MPI_Iallgather, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, in, count, MPI_INT, comm);
    for (int r = 0; r < all; r++)
        check_ints(in + r * count, count, r, 1);

    at("MPI_Allgatherv of %d ints%s", count, started ? ", started" : "");
    set_counts(count);
    set(out, counts[me], me, 0);
    RUN(MPI_Allgatherv, MPI_Iallgatherv, out, counts[me], MPI_INT, in, counts, places, MPI_INT, comm);
    for (int r = 0; r < all; r++)
        check_ints(in + places[r], counts[r], r, 0);

    at("MPI_Alltoall of %d ints%s", count, started ? ", started" : "");
    for (int r = 0; r < all; r++)
        set(out + r * count, count, me, r);
    RUN(MPI_Alltoall, MPI_Ialltoall, out, count, MPI_INT, in, count, MPI_INT, comm);
    for (int r = 0; r < all; r++)
        check_ints(in + r * count, count, r, me);

    /* Every rank sends count_of(to) to rank `to`, so it receives count_of(me) from each. */
    int *in_counts = memory(sizeof(int) * (size_t)all), *in_places = memory(sizeof(int) * (size_t)all);
    for (int r = 0; r < all; r++) {
        set(out + places[r], counts[r], me, r);
        in_counts[r] = counts[me];
        in_places[r] = r * (counts[me] + 2);
    }
    at("MPI_Alltoallv of %d ints%s", count, started ? ", started" : "");
    RUN(MPI_Alltoallv, MPI_Ialltoallv, out, counts, places, MPI_INT, in, in_counts, in_places, MPI_INT, comm);
    for (int r = 0; r < all; r++)
        check_ints(in + in_places[r], in_counts[r], r, me);

    at("MPI_Alltoallw of %d ints%s", count, started ? ", started" : "");
    MPI_Datatype *types_out = memory(sizeof(MPI_Datatype) * (size_t)all);
    int *bytes_out = memory(sizeof(int) * (size_t)all);
    memset(in, 0, sizeof(int) * (size_t)(all * (counts[me] + 2)));
    for (int r = 0; r < all; r++) {
        types_out[r] = MPI_INT;
        bytes_out[r] = places[r] * (int)sizeof(int);
        in_places[r] *= (int)sizeof(int);
    }
    RUN(MPI_Alltoallw, MPI_Ialltoallw, out, counts, bytes_out, types_out, in, in_counts, in_places, types_out, comm);
    for (int r = 0; r < all; r++)
        check_ints(in + in_places[r] / (int)sizeof(int), in_counts[r], r, me);
    free(in_counts);
    free(in_places);
    free(types_out);
    free(bytes_out);
}

/* The maps x -> a*x + b, one after the other: the order of the ranks matters. */
static void compose(void *first, void *second, int *length, MPI_Datatype *type)
{
    uint32_t *before = first, *after = second;
    (void)type;
    for (int i = 0; i < *length; i++) {
        after[2 * i + 1] += after[2 * i] * before[2 * i + 1];
        after[2 * i] *= before[2 * i];
    }
}

static MPI_Op composition;
static MPI_Datatype map;

/* The composition of ranks 0 to `last`, for map `i`. */
static void check_map(const uint32_t *is, int last, int i)
{
    uint32_t a = 1, b = 0;
    for (int r = 0; r <= last; r++) {
        b = b * (uint32_t)(r + 3) + (uint32_t)(r + i);
        a *= (uint32_t)(r + 3);
    }
    CHECK(is[0] == a && is[1] == b, "map %d is wrong", i);
}

static void set_maps(uint32_t *maps, int count)
{
    for (int i = 0; i < count; i++) {
        maps[2 * i] = (uint32_t)(me + 3);
        maps[2 * i + 1] = (uint32_t)(me + i);
    }
}

static void reductions(int count)
{
    uint32_t *maps_out = (uint32_t *)out, *maps_in = (uint32_t *)in;
    set_counts(count);
    at("MPI_Allreduce, maximum of %d ints%s", count, started ? ", started" : "");
    set(out, count, me, 0);
    RUN(MPI_Allreduce, MPI_Iallreduce, out, in, count, MPI_INT, MPI_MAX, comm);
    check_ints(in, count, all - 1, 0);

    at("MPI_Allreduce in place, %d ints%s", count, started ? ", started" : "");
    set(in, count, me, 0);
    RUN(MPI_Allreduce, MPI_Iallreduce, MPI_IN_PLACE, in, count, MPI_INT, MPI_MIN, comm);
    check_ints(in, count, 0, 0);

    at("MPI_Allreduce that doesn't commute, %d maps%s", count, started ? ", started" : "");
    set_maps(maps_out, count);
    RUN(MPI_Allreduce, MPI_Iallreduce, maps_out, maps_in, count, map, composition, comm);
    for (int i = 0; i < count; i++)
        check_map(maps_in + 2 * i, all - 1, i);

    at("MPI_Scan that doesn't commute, %d maps%s", count, started ? ", started" : "");
    RUN(MPI_Scan, MPI_Iscan, maps_out, maps_in, count, map, composition, comm);
    for (int i = 0; i < count; i++)
        check_map(maps_in + 2 * i, me, i);

    at("MPI_Exscan that doesn't commute, %d maps%s", count, started ? ", started" : "");
    RUN(MPI_Exscan, MPI_Iexscan, maps_out, maps_in, count, map, composition, comm);
    for (int i = 0; i < count && me > 0; i++)
        check_map(maps_in + 2 * i, me - 1, i);

    at("MPI_Reduce_scatter_block of %d ints%s", count, started ? ", started" : "");
    for (int r = 0; r < all; r++)
        set(out + r * count, count, me, r);
    RUN(MPI_Reduce_scatter_block, MPI_Ireduce_scatter_block, out, in, count, MPI_INT, MPI_MAX, comm);
    check_ints(in, count, all - 1, me);

    at("MPI_Reduce_scatter of %d ints%s", count, started ? ", started" : "");
    for (int r = 0, place = 0; r < all; place += counts[r++])
        set(out + place, counts[r], me, r);
    RUN(MPI_Reduce_scatter, MPI_Ireduce_scatter, out, in, counts, MPI_INT, MPI_MAX, comm);
    check_ints(in, counts[me], all - 1, me);
}

/* On a ring, where each rank has two neighbours (which may be the same rank). */
static void neighbours(int count)
{
    int periodic = 1, left, right;
    MPI_Comm world = comm, ring;
    MPI_Cart_create(world, 1, &all, &periodic, 0, &ring);
    MPI_Cart_shift(ring, 0, 1, &left, &right);
    comm = ring;
    at("MPI_Neighbor_allgather of %d ints%s", count, started ? ", started" : "");
    set(out, count, me, 0);
    RUN(MPI_Neighbor_allgather, MPI_Ineighbor_allgather, out, count, MPI_INT, in, count, MPI_INT, comm);
    check_ints(in, count, left, 0);
    check_ints(in + count, count, right, 0);
    /* Where both neighbours are one rank, libraries differ in which message is whose. */
    if (all > 2) {
        at("MPI_Neighbor_alltoall of %d ints%s", count, started ? ", started" : "");
        set(out, count, me, left);
        set(out + count, count, me, right);
        RUN(MPI_Neighbor_alltoall, MPI_Ineighbor_alltoall, out, count, MPI_INT, in, count, MPI_INT, comm);
        check_ints(in, count, left, me);
        check_ints(in + count, count, right, me);
    }
    comm = world;
    MPI_Comm_free(&ring);
}

/* A rank that comes late holds up all others. */
static void barriers(void)
{
    static int order_seen;
    for (int late = 0; late < all; late++) {
        at("MPI_Barrier with rank %d late%s", late, started ? ", started" : "");
        order_seen = 0;
        if (me == late) {
            for (int r = 0; r < all; r++) {
                if (r != late)
                    MPI_Send(&late, 1, MPI_INT, r, 9, comm);
            }
            RUN(MPI_Barrier, MPI_Ibarrier, comm);
        } else {
            int done = 0;
            if (started) {
                MPI_Ibarrier(comm, &request);
                MPI_Test(&request, &done, MPI_STATUS_IGNORE);
            }
            MPI_Recv(&order_seen, 1, MPI_INT, late, 9, comm, MPI_STATUS_IGNORE);
            if (!started)
                MPI_Barrier(comm);
            else
                MPI_Wait(&request, MPI_STATUS_IGNORE);
            CHECK(order_seen == late, "%d instead of %d", order_seen, late);
        }
    }
}

void collectives(void)
{
    static const int sizes_long[] = {0, 1, 7, 600, 5000, 100000, 700000};
    static const int sizes_short[] = {0, 1, 7, 600, 20000};
    int steps = brief ? 5 : 7, longest = brief ? 20000 : 700000;
    size_t room = sizeof(int) * (size_t)ranks * (size_t)(longest + ranks + 2);
    MPI_Comm reversed;
    MPI_Comm_split(MPI_COMM_WORLD, 0, ranks - rank, &reversed);
    MPI_Op_create(compose, 0, &composition);
    MPI_Type_contiguous(2, MPI_UINT32_T, &map);
    MPI_Type_commit(&map);
    out = memory(2 * room);
    in = memory(2 * room);
    counts = memory(sizeof(int) * (size_t)ranks);
    places = memory(sizeof(int) * (size_t)ranks);
    for (int pass = 0; pass < 4; pass++) {
        comm = pass / 2 ? reversed : MPI_COMM_WORLD;
        started = pass % 2;
        MPI_Comm_rank(comm, &me);
        MPI_Comm_size(comm, &all);
        barriers();
        /* The second communicator differs in its ranks only, so short messages do. */
        for (int i = 0; i < (pass / 2 ? 4 : steps); i++) {
            int count = brief ? sizes_short[i] : sizes_long[i];
            for (int root = 0; root < all; root++)
                rooted(count, root);
            to_all(count);
            reductions(count);
            neighbours(count);
        }
    }
    free(out);
    free(in);
    free(counts);
    free(places);
    MPI_Op_free(&composition);
    MPI_Type_free(&map);
    MPI_Comm_free(&reversed);
}
