/* box.c — parts of arrays: the intersection of two boxes, and copying the elements of a box from
 * memory that contains another one. */
#include <mx/base.h>

MxBox mx_box_of(MxShape shape) {
    MxBox box = {.rank = shape.rank};
    memcpy(box.count, shape.dim, sizeof box.count);
    return box;
}

int64_t mx_box_count(const MxBox *box) {
    int64_t n = 1;
    for (int d = 0; d < box->rank; d++) n *= box->count[d];
    return n;
}

bool mx_box_equal(const MxBox *a, const MxBox *b) {
    bool is_equal = a->rank == b->rank;
    for (int d = 0; d < a->rank && is_equal; d++)
        is_equal = a->start[d] == b->start[d] && a->count[d] == b->count[d];
    return is_equal;
}

MxBox mx_box_meet(const MxBox *a, const MxBox *b) {
    MX_ASSERT(a->rank == b->rank);
    MxBox both = {.rank = a->rank};
    for (int d = 0; d < a->rank; d++) {
        int64_t start = a->start[d] > b->start[d] ? a->start[d] : b->start[d];
        int64_t a_end = a->start[d] + a->count[d], b_end = b->start[d] + b->count[d];
        int64_t end = a_end < b_end ? a_end : b_end;
        both.start[d] = start;
        both.count[d] = end > start ? end - start : 0;
    }
    return both;
}

MxBox mx_box_insert(MxBox box, int dim, int64_t start, int64_t count) {
    MX_ASSERT(dim >= 0 && dim <= box.rank && box.rank < MX_MAX_RANK);
    for (int d = box.rank++; d > dim; d--) {
        box.start[d] = box.start[d - 1];
        box.count[d] = box.count[d - 1];
    }
    box.start[dim] = start;
    box.count[dim] = count;
    return box;
}

MxBoxRuns mx_box_runs(const MxBox *box, const MxBox *a, const MxBox *b) {
    MxBoxRuns runs = {.box = *box, .in = {*a, *b}, .outer = box->rank, .n = 1, .length = 1};
    MX_ASSERT(a->rank == box->rank && b->rank == box->rank && mx_box_count(box) > 0);
    bool is_whole = true; /* in both, over the dims so far */
    while (runs.outer && is_whole) {
        int d = --runs.outer;
        runs.length *= box->count[d];
        is_whole = box->count[d] == a->count[d] && box->count[d] == b->count[d];
    }
    for (int d = 0; d < runs.outer; d++) runs.n *= box->count[d];
    return runs;
}

void mx_box_run_at(const MxBoxRuns *runs, int64_t i, int64_t at[2]) {
    const MxBox *box = &runs->box;
    int64_t stride[2] = {1, 1};
    at[0] = at[1] = 0;
    for (int d = box->rank - 1; d >= 0; d--) {
        int64_t place = box->start[d];
        if (d < runs->outer) {
            place += i % box->count[d];
            i /= box->count[d];
        }
        for (int k = 0; k < 2; k++) {
            at[k] += (place - runs->in[k].start[d]) * stride[k];
            stride[k] *= runs->in[k].count[d];
        }
    }
}

void mx_box_copy(const MxBox *box, const MxBox *from, const void *from_data, const MxBox *to,
                 void *to_data, size_t element_bytes) {
    if (!mx_box_count(box)) return;
    MxBoxRuns runs = mx_box_runs(box, from, to);
    for (int64_t i = 0; i < runs.n; i++) {
        int64_t at[2];
        mx_box_run_at(&runs, i, at);
        memcpy((char *)to_data + (size_t)at[1] * element_bytes,
               (const char *)from_data + (size_t)at[0] * element_bytes,
               (size_t)runs.length * element_bytes);
    }
}
