/* Derived datatypes: the right bytes are sent, the right bytes are written, and the gaps stay as they were.
 *
 * Licence: MIT or Apache-2.0, as the rest of the project. */
#include "everything.h"

/* A datatype of ints, and the index of each of its ints, in order, from the address that MPI is given. */
struct layout {
    const char *name;
    MPI_Datatype type;
    int ints;
    int *index;
    int first, last; /* the lowest and highest index of all elements */
};

enum { ELEMENTS_LONG = 3000, ELEMENTS_SHORT = 3, INTS = 12 };

/* `extent` is in ints. `at[i]` is where the i-th int of an element lies. */
static struct layout layout(const char *name, MPI_Datatype type, int elements, int extent, const int *at_index)
{
    struct layout l = {name, type, elements * INTS, memory(sizeof *l.index * (size_t)(elements * INTS)), 0, 0};
    for (int i = 0; i < l.ints; i++) {
        l.index[i] = i / INTS * extent + at_index[i % INTS];
        l.first = l.index[i] < l.first ? l.index[i] : l.first;
        l.last = l.index[i] > l.last ? l.index[i] : l.last;
    }
    MPI_Type_commit(&l.type);
    return l;
}

static int value_of(unsigned seed, int i)
{
    return (int)(seed * 7919u + (unsigned)i * 31u);
}

enum { UNTOUCHED = -77 };

static int *new_box(const struct layout *l, int **origin)
{
    int *box = memory(sizeof *box * (size_t)(l->last - l->first + 1));
    for (int i = 0; i <= l->last - l->first; i++)
        box[i] = UNTOUCHED;
    *origin = box - l->first;
    return box;
}

static void transfer(const struct layout *out, const struct layout *in, int elements, int from, int to)
{
    unsigned seed = seed_of(from, to, (unsigned)elements);
    int *origin, *box, count;
    MPI_Request request;
    MPI_Status status;
    at("%d times %s to %s, %d to %d", elements, out->name, in->name, from, to);
    if (rank == from) {
        box = new_box(out, &origin);
        for (int i = 0; i < out->ints; i++)
            origin[out->index[i]] = value_of(seed, i);
        await_ready(to);
        MPI_Send(origin, elements, out->type, to, 2, MPI_COMM_WORLD);
        MPI_Isend(origin, elements, out->type, to, 3, MPI_COMM_WORLD, &request);
        ready(to);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        free(box);
        return;
    }
    for (int unexpected = 0; unexpected < 2; unexpected++) {
        box = new_box(in, &origin);
        if (unexpected)
            await_ready(from);
        MPI_Irecv(origin, elements, in->type, from, 2 + unexpected, MPI_COMM_WORLD, &request);
        if (!unexpected)
            ready(from);
        MPI_Wait(&request, &status);
        MPI_Get_count(&status, in->type, &count);
        CHECK(count == elements, "%d elements instead of %d", count, elements);
        MPI_Get_elements(&status, in->type, &count);
        CHECK(count == elements * INTS, "%d ints instead of %d", count, elements * INTS);
        for (int i = 0; i < in->ints; i++) {
            CHECK(origin[in->index[i]] == value_of(seed, i), "int %d is wrong", i);
            origin[in->index[i]] = UNTOUCHED;
        }
        for (int i = 0; i <= in->last - in->first; i++)
            CHECK(box[i] == UNTOUCHED, "the gap at int %d was written", i + in->first);
        free(box);
    }
}

enum { LAYOUTS = 7 };

static void make_layouts(struct layout *all, int elements)
{
    MPI_Datatype type, inner;
    int in_order[INTS], strided[INTS], grouped[INTS], backwards[INTS], negative[INTS], block[INTS], nested[INTS];
    for (int i = 0; i < INTS; i++) {
        in_order[i] = i;
        strided[i] = i / 3 * 5 + i % 3;
        backwards[i] = (INTS - 1 - i) * 2;
        negative[i] = i - 20;
        block[i] = (i / 4 + 1) * 6 + i % 4 + 1;
        nested[i] = i / 6 * 20 + i % 6 / 2 * 4 + i % 2;
    }
    MPI_Type_contiguous(INTS, MPI_INT, &type);
    all[0] = layout("contiguous", type, elements, INTS, in_order);

    MPI_Type_vector(4, 3, 5, MPI_INT, &type);
    all[1] = layout("vector", type, elements, 18, strided);

    int lengths[] = {1, 5, 0, 2, 4}, places[] = {7, 0, 3, 9, 20};
    MPI_Type_indexed(5, lengths, places, MPI_INT, &type);
    for (int b = 0, i = 0; b < 5; b++) {
        for (int k = 0; k < lengths[b]; k++)
            grouped[i++] = places[b] + k;
    }
    all[2] = layout("indexed", type, elements, 24, grouped);

    /* The last int first: displacements go down. */
    int places_down[INTS];
    for (int i = 0; i < INTS; i++)
        places_down[i] = backwards[i];
    MPI_Type_create_indexed_block(INTS, 1, places_down, MPI_INT, &type);
    all[3] = layout("indexed backwards", type, elements, 23, backwards);

    /* All data lies before the address, and each element before the one that precedes it. */
    int one = INTS;
    MPI_Aint start = -20 * (MPI_Aint)sizeof(int);
    MPI_Type_create_hindexed(1, &one, &start, MPI_INT, &inner);
    MPI_Type_create_resized(inner, start, -15 * (MPI_Aint)sizeof(int), &type);
    MPI_Type_free(&inner);
    all[4] = layout("negative displacements and extent", type, elements, -15, negative);

    int whole[] = {5, 6}, part[] = {3, 4}, corner[] = {1, 1};
    MPI_Type_create_subarray(2, whole, part, corner, MPI_ORDER_C, MPI_INT, &type);
    all[5] = layout("subarray", type, elements, 30, block);

    MPI_Type_vector(3, 2, 4, MPI_INT, &inner);
    MPI_Type_create_hvector(2, 1, 20 * (MPI_Aint)sizeof(int), inner, &type);
    MPI_Type_free(&inner);
    all[6] = layout("vector of vectors", type, elements, 30, nested);
}

static void all_layouts(int from, int to)
{
    for (int pass = 0; pass < 2; pass++) {
        int elements = pass ? ELEMENTS_LONG : ELEMENTS_SHORT;
        struct layout all[LAYOUTS];
        make_layouts(all, elements);
        for (int out = 0; out < LAYOUTS; out++) {
            for (int in = 0; in < LAYOUTS; in++)
                transfer(&all[out], &all[in], elements, from, to);
        }
        for (int i = 0; i < LAYOUTS; i++) {
            MPI_Type_free(&all[i].type);
            free(all[i].index);
        }
    }
}

/* Members of several kinds, with the compiler's gaps between them; and the same packed. */
struct record {
    char name[3];
    double weight;
    short small;
    int64_t large;
};

static void records(int from, int to)
{
    enum { COUNT = 5000 };
    static struct record box[COUNT];
    struct record sample;
    int lengths[] = {3, 1, 1, 1}, position = 0, size;
    MPI_Datatype members[] = {MPI_CHAR, MPI_DOUBLE, MPI_SHORT, MPI_INT64_T}, inner, type;
    MPI_Aint places[] = {(char *)sample.name - (char *)&sample, (char *)&sample.weight - (char *)&sample,
                         (char *)&sample.small - (char *)&sample, (char *)&sample.large - (char *)&sample};
    MPI_Type_create_struct(4, lengths, places, members, &inner);
    MPI_Type_create_resized(inner, 0, sizeof(struct record), &type);
    MPI_Type_commit(&type);
    MPI_Pack_size(COUNT, type, MPI_COMM_WORLD, &size);
    char *packed = memory((size_t)size);
    at("records, %d to %d", from, to);
    memset(box, 0x33, sizeof box);
    if (rank == from) {
        for (int i = 0; i < COUNT; i++) {
            memcpy(box[i].name, "abc", 3);
            box[i].weight = i + 0.5;
            box[i].small = (short)i;
            box[i].large = i * INT64_C(10000000000);
        }
        MPI_Send(box, COUNT, type, to, 4, MPI_COMM_WORLD);
        MPI_Pack(box, COUNT, type, packed, size, &position, MPI_COMM_WORLD);
        MPI_Send(packed, position, MPI_PACKED, to, 5, MPI_COMM_WORLD);
    } else {
        for (int pass = 0; pass < 2; pass++) {
            if (pass == 0) {
                MPI_Recv(box, COUNT, type, from, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            } else {
                MPI_Recv(packed, size, MPI_PACKED, from, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                memset(box, 0x33, sizeof box);
                MPI_Unpack(packed, size, &position, box, COUNT, type, MPI_COMM_WORLD);
            }
            for (int i = 0; i < COUNT; i++) {
                CHECK(memcmp(box[i].name, "abc", 3) == 0 && box[i].weight == i + 0.5 && box[i].small == (short)i &&
                          box[i].large == i * INT64_C(10000000000), "record %d is wrong", i);
                CHECK(((char *)&box[i])[3] == 0x33, "the gap of record %d was written", i);
            }
        }
    }
    free(packed);
    MPI_Type_free(&inner);
    MPI_Type_free(&type);
}

/* Fewer ints than an element has: MPI_Get_elements counts them, MPI_Get_count has no answer. */
static void part_of_an_element(int from, int to)
{
    int values[INTS] = {1, 2, 3, 4, 5}, elements, count;
    MPI_Datatype type;
    MPI_Status status;
    MPI_Type_contiguous(INTS, MPI_INT, &type);
    MPI_Type_commit(&type);
    at("part of an element, %d to %d", from, to);
    if (rank == from) {
        MPI_Send(values, 5, MPI_INT, to, 6, MPI_COMM_WORLD);
    } else {
        MPI_Recv(values, 1, type, from, 6, MPI_COMM_WORLD, &status);
        MPI_Get_elements(&status, type, &elements);
        MPI_Get_count(&status, type, &count);
        CHECK(elements == 5 && count == MPI_UNDEFINED && values[4] == 5, "%d elements, count %d", elements, count);
    }
    MPI_Type_free(&type);
}

void types(void)
{
    for_all_pairs(all_layouts);
    for_all_pairs(records);
    for_all_pairs(part_of_an_element);
}
