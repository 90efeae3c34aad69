/* Windows: put, get, accumulate and atomic operations, with fences and with locks.
 *
 * Licence: MIT or Apache-2.0, as the rest of the project. */
#include "everything.h"

enum { INTS = 50000 };

static MPI_Win window;
static int64_t *own, *box;

static int64_t value(int of, int i)
{
    return of * INT64_C(1000000007) + i;
}

static void fences(int count)
{
    int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    at("MPI_Put of %d with fences", count);
    for (int i = 0; i < count; i++)
        box[i] = value(rank, i);
    MPI_Win_fence(0, window);
    MPI_Put(box, count, MPI_INT64_T, right, 0, count, MPI_INT64_T, window);
    MPI_Win_fence(0, window);
    for (int i = 0; i < count; i++)
        CHECK(own[i] == value(left, i), "int %d is wrong", i);
    at("MPI_Get of %d with fences", count);
    MPI_Win_fence(0, window);
    MPI_Get(box, count, MPI_INT64_T, right, 0, count, MPI_INT64_T, window);
    MPI_Win_fence(0, window);
    for (int i = 0; i < count; i++)
        CHECK(box[i] == value(rank, i), "int %d is wrong", i);
    at("MPI_Accumulate of %d with fences", count);
    for (int i = 0; i < count; i++) {
        own[i] = 0;
        box[i] = value(rank, i);
    }
    MPI_Win_fence(0, window);
    for (int to = 0; to < ranks; to++)
        MPI_Accumulate(box, count, MPI_INT64_T, to, 0, count, MPI_INT64_T, MPI_SUM, window);
    MPI_Win_fence(0, window);
    for (int i = 0; i < count; i++)
        CHECK(own[i] == value(ranks * (ranks - 1) / 2, 0) + (int64_t)ranks * i, "int %d is wrong", i);
}

/* Every second int of the target, from a contiguous box. */
static void strided(void)
{
    int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks, count = 1000;
    MPI_Datatype every_second;
    at("MPI_Put of a vector");
    MPI_Type_vector(count, 1, 2, MPI_INT64_T, &every_second);
    MPI_Type_commit(&every_second);
    for (int i = 0; i < 2 * count; i++) {
        own[i] = -1;
        box[i] = value(rank, i);
    }
    MPI_Win_fence(0, window);
    MPI_Put(box, count, MPI_INT64_T, right, 0, 1, every_second, window);
    MPI_Win_fence(0, window);
    for (int i = 0; i < 2 * count; i++)
        CHECK(own[i] == (i % 2 ? -1 : value(left, i / 2)), "int %d is wrong", i);
    MPI_Type_free(&every_second);
}

static void locks(void)
{
    enum { ROUNDS = 200 };
    int64_t one = 1, seen, old, sum = 0;
    own[0] = own[1] = own[2] = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < ROUNDS; i++) {
        int target = (rank + i) % ranks;
        at("MPI_Win_lock, round %d", i);
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window);
        MPI_Get(&seen, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, window);
        MPI_Win_flush(target, window);
        seen++;
        MPI_Put(&seen, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, window);
        MPI_Win_unlock(target, window);

        at("MPI_Fetch_and_op, round %d", i);
        MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
        MPI_Fetch_and_op(&one, &old, MPI_INT64_T, 0, 1, MPI_SUM, window);
        MPI_Win_flush(0, window);
        CHECK(old >= 0 && old < (int64_t)ROUNDS * ranks, "counter %lld", (long long)old);
        /* Only the rank that finds the value it expects can set it. */
        MPI_Compare_and_swap(&one, &sum, &old, MPI_INT64_T, 0, 2, window);
        MPI_Win_unlock(0, window);
        CHECK(old == 0 || old == 1, "swapped %lld", (long long)old);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
    CHECK(rank != 0 || own[1] == (int64_t)ROUNDS * ranks, "counter %lld", (long long)own[1]);
    CHECK(rank != 0 || own[2] == 1, "swapped %lld", (long long)own[2]);
    MPI_Win_unlock(rank, window);
    at("sum of the counters");
    MPI_Allreduce(&own[0], &sum, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == (int64_t)ROUNDS * ranks, "counters make %lld", (long long)sum);
}

/* Requests of single operations, in an epoch with all ranks. */
static void requests(void)
{
    MPI_Request request;
    at("MPI_Rput, MPI_Rget");
    MPI_Win_lock_all(0, window);
    for (int to = 0; to < ranks; to++) {
        box[to] = value(rank, to);
        MPI_Rput(&box[to], 1, MPI_INT64_T, to, 100 + rank, 1, MPI_INT64_T, window, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Win_flush_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int from = 0; from < ranks; from++) {
        for (int i = 0; i < ranks; i++) {
            int64_t got = -1;
            MPI_Rget(&got, 1, MPI_INT64_T, from, 100 + i, 1, MPI_INT64_T, window, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            CHECK(got == value(i, from), "%lld of rank %d at rank %d", (long long)got, i, from);
        }
    }
    MPI_Win_unlock_all(window);
}

/* Start, complete, post, wait: epochs between two ranks only. */
static void pairs(void)
{
    int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    MPI_Group world, to, from;
    at("MPI_Win_start, MPI_Win_post");
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 1, &right, &to);
    MPI_Group_incl(world, 1, &left, &from);
    box[0] = value(rank, 5);
    MPI_Win_post(from, 0, window);
    MPI_Win_start(to, 0, window);
    MPI_Put(box, 1, MPI_INT64_T, right, 0, 1, MPI_INT64_T, window);
    MPI_Win_complete(window);
    MPI_Win_wait(window);
    CHECK(own[0] == value(left, 5), "wrong");
    MPI_Group_free(&world);
    MPI_Group_free(&to);
    MPI_Group_free(&from);
}

void one_sided(void)
{
    box = memory(sizeof *box * INTS);
    at("MPI_Win_allocate");
    MPI_Win_allocate(sizeof *own * INTS, sizeof *own, MPI_INFO_NULL, MPI_COMM_WORLD, &own, &window);
    fences(1);
    fences(300);
    fences(INTS);
    strided();
    locks();
    requests();
    pairs();
    MPI_Win_free(&window);
    free(box);
}
