/* hf_pieces.c — values of a folder's tensors. The tensor that was read last is kept, completely or,
 * if it is too large, as a window of neighbouring elements. Requests are cut into boxes that a
 * window holds, along the dims whose elements are furthest apart in the tensor. So memory is
 * bounded for tensors of any size. */
#include "hf.h"

#include <stdlib.h>

/* The child process that converts has 3 GiB. */
static const int64_t most_whole = 5LL << 29, window_bytes = 1LL << 30, written_bytes = 1LL << 28;

/* For tests, which have no such tensors. */
static int64_t bytes_or(int64_t usual) {
    const char *said = getenv("MX_PIECE_BYTES");
    return said ? strtoll(said, NULL, 10) : usual;
}

int64_t hf_written_bytes(void) {
    return bytes_or(written_bytes);
}

void hf_span(const HfMap *map, const MxBox *box, int64_t *from, int64_t *to) {
    *from = map->offset;
    *to = map->offset + 1;
    for (int d = 0; d < box->rank; d++) {
        int64_t first = box->start[d] - map->part.start[d], last = first + box->count[d] - 1;
        if (d == map->rotated) first = 0, last = map->ours.dim[d] - 1;
        *from += first * map->stride[d];
        *to += last * map->stride[d];
    }
}

/* Elements from .. to of a tensor, or more, in memory. */
static bool keep(CkptHf *hf, const HfLink *link, int64_t from, int64_t to, MxError *err) {
    const MxTensor *tensor = link->tensor;
    if (hf->tensor == tensor && hf->from <= from && to <= hf->to) return true;
    int64_t n = mx_shape_count(tensor->shape), size = (int64_t)mx_dtype_bytes(tensor->dtype);
    int64_t most = bytes_or(window_bytes) / size, behind = from + most < n ? from + most : n;
    bool is_whole = link->parts || n * size <= bytes_or(most_whole);
    hf->from = is_whole ? 0 : from;
    hf->to = is_whole ? n : behind > to ? behind : to;
    n = hf->to - hf->from;
    if (n * size > hf->room) { /* pages that are new cost as much as reading them */
        mx_arena_release(&hf->kept);
        hf->data = mx_arena_alloc(&hf->kept, (size_t)(n * size) + 1);
        hf->room = n * size;
    }
    hf->tensor = tensor;
    if (link->parts    ? hf_meta_read(link->parts, hf->data, err)
        : link->scaled ? hf_scaled_read(link->scaled, hf->from, n, hf->data, err)
                       : mx_tensors_read_part(link->file, tensor, hf->from, n, hf->data, err))
        return true;
    hf->tensor = NULL;
    return false;
}

/* Where values go, and of which box of ours. */
typedef struct Want {
    const MxBox *box;
    MxDtype dtype;
    void *out;
} Want;

static void copy_run(const CkptHf *hf, const HfRun *run, const Want *want) {
    enum { PIECE = 512 };
    float piece[PIECE * HF_APART_MOST];
    for (int64_t first = 0; first < run->n; first += PIECE) {
        int64_t n = run->n - first < PIECE ? run->n - first : PIECE;
        mx_tensor_widen(hf->data, hf->tensor->dtype, run->theirs + first * run->apart - hf->from,
                        (n - 1) * run->apart + 1, piece);
        for (int64_t i = 0; i < n; i++) {
            int64_t at = run->at + (first + i) * run->step;
            float theirs = piece[i * run->apart];
            bool is_exported = hf->beside && hf_in_theirs(run->map, hf->beside[at]) == theirs;
            hf_put(want->out, want->dtype, at,
                   is_exported ? hf->beside[at] : hf_in_ours(run->map, theirs));
        }
    }
}

static bool read_piece(CkptHf *hf, const HfLink *link, const Want *want, const MxBox *piece,
                       MxError *err) {
    int64_t from, to;
    HfRun run;
    hf_span(&link->map, piece, &from, &to);
    mx_store_guard_rearm(mx_tensors_path(link->file));
    if (!keep(hf, link, from, to, err)) return false;
    for (bool goes_on = hf_run_start(&run, &link->map, want->box, piece); goes_on;
         goes_on = hf_run_next(&run))
        copy_run(hf, &run, want);
    return true;
}

/* Halves of a box, until it spans no more elements than a window has. */
static MxBox first_piece(const HfLink *link, const MxBox *part) {
    const MxTensor *tensor = link->tensor;
    const HfMap *map = &link->map;
    int64_t size = (int64_t)mx_dtype_bytes(tensor->dtype), from, to;
    MxBox piece = *part;
    if (link->parts || mx_shape_count(tensor->shape) * size <= bytes_or(most_whole)) return piece;
    while (hf_span(map, &piece, &from, &to), (to - from) * size > bytes_or(window_bytes)) {
        int longest = -1;
        for (int d = 0; d < piece.rank; d++)
            if (d != map->rotated && piece.count[d] > 1 &&
                (longest < 0 || map->stride[d] > map->stride[longest]))
                longest = d;
        if (longest < 0) break; /* a head */
        piece.count[longest] = (piece.count[longest] + 1) / 2;
    }
    return piece;
}

/* At the next piece of a part; false behind the last. */
static bool next_piece(const MxBox *part, const MxBox *first, MxBox *piece) {
    for (int d = part->rank - 1; d >= 0; d--) {
        int64_t end = part->start[d] + part->count[d], at = piece->start[d] + first->count[d];
        piece->start[d] = at < end ? at : part->start[d];
        int64_t left = end - piece->start[d];
        piece->count[d] = left < first->count[d] ? left : first->count[d];
        if (at < end) return true;
    }
    return false;
}

static void fill_ones(const MxBox *part, MxDtype dtype, void *out) {
    for (int64_t i = 0, n = mx_box_count(part); i < n; i++) hf_put(out, dtype, i, 1);
}

bool ckpt_hf_read(CkptHf *hf, int array, const MxBox *box, MxDtype dtype, void *out, MxError *err) {
    const Want want = {box, dtype, out};
    MX_ASSERT(dtype == MX_F32 || dtype == MX_F64 || dtype == MX_BF16);
    for (const HfLink *link = &hf->links[array]; link; link = link->next) {
        MxBox part = mx_box_meet(box, &link->map.part);
        if (!mx_box_count(&part)) continue;
        if (!link->tensor) {
            fill_ones(&part, dtype, out);
            continue;
        }
        MxBox first = first_piece(link, &part), piece = first;
        do
            if (!read_piece(hf, link, &want, &piece, err)) return false;
        while (next_piece(&part, &first, &piece));
    }
    return true;
}
