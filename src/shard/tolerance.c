/* tolerance.c — checks whether enough of a model is sharded: counts the elements of arrays that
 * some mesh axis does not shard, and warns in MaxText's words. The total is in elements, while
 * MaxText divides elements by bytes; the report also contains the bytes, from which MaxText's
 * number can be computed. */
#include "internal.h"

enum { LISTED = 5 }; /* largest arrays named in the message */

/* Mesh axes that a parameter is expected to be cut by, sorted as MaxText prints them. */
static const char *const counted_axes[] = {
    "context",
    "context_autoregressive",
    "context_usp_ulysses",
    "expert",
    "fsdp",
    "fsdp_transpose",
    "sequence",
    "stage",
    "tensor",
    "tensor_sequence",
};

typedef struct Targets {
    const char *axes[MX_COUNT(counted_axes)];
    int n;
} Targets;

static Targets targets_of(const MxMesh *mesh) {
    Targets t = {.n = 0};
    for (int i = 0; i < MX_COUNT(counted_axes); i++)
        if (mx_mesh_size(mesh, counted_axes[i]) > 1) t.axes[t.n++] = counted_axes[i];
    return t;
}

static bool is_unsharded(const MxShardArray *array, const Targets *targets) {
    for (int i = 0; i < targets->n; i++)
        if (!mx_spec_uses(array->spec, targets->axes[i])) return true;
    return false;
}

/* Keeps the largest in descending order; of equals the earlier one comes first. */
static void keep_largest(const MxShardArray **top, const MxShardArray *array) {
    int64_t size = mx_shape_count(array->shape);
    int at = LISTED;
    while (at > 0 && (!top[at - 1] || mx_shape_count(top[at - 1]->shape) < size)) at--;
    for (int i = LISTED - 1; i > at; i--) top[i] = top[i - 1];
    if (at < LISTED) top[at] = array;
}

static void add_list(MxText *text, const Targets *targets, MxSpec spec, bool only_missing) {
    int n = 0;
    mx_text_add(text, "[");
    for (int i = 0; i < targets->n; i++)
        if (!only_missing || !mx_spec_uses(spec, targets->axes[i]))
            mx_text_add(text, "%s'%s'", n++ ? ", " : "", targets->axes[i]);
    mx_text_add(text, "]");
}

static void name_largest(const MxShardArray *const *top, const Targets *targets, MxError *err) {
    MxArena scratch = {.name = "message"};
    mx_note(err, "The following large tensors are replicated (unsharded) but could be sharded on "
                 "at least one of the available axes:");
    for (int i = 0; i < LISTED && top[i]; i++) {
        MxText text;
        mx_text_init(&text, &scratch);
        mx_text_add(&text, " - Name: %s(Size: %lld, Shape: %s, Spec: %s)  is unsharded on axis: ",
                    top[i]->path, (long long)mx_shape_count(top[i]->shape),
                    mx_shape_text(&scratch, top[i]->shape), mx_spec_python(&scratch, top[i]->spec));
        add_list(&text, targets, top[i]->spec, true);
        mx_text_add(&text, " could be sharded on: ");
        add_list(&text, targets, top[i]->spec, false);
        mx_note(err, "%s", text.data);
    }
    mx_arena_release(&scratch);
}

bool mx_shard_sufficient(const MxMesh *mesh, const MxShardArray *arrays, int n,
                         MxTolerance tolerance, MxShardReport *report, MxError *err) {
    Targets targets = targets_of(mesh);
    const MxShardArray *top[LISTED] = {0};
    MxShardReport r = {0};
    for (int i = 0; i < n; i++) {
        int64_t size = mx_shape_count(arrays[i].shape);
        r.total_elements += size;
        r.total_bytes += size * (int64_t)mx_dtype_bytes(arrays[i].dtype);
        if (!is_unsharded(&arrays[i], &targets)) continue;
        r.n_unsharded++;
        r.unsharded_elements += size;
        keep_largest(top, &arrays[i]);
    }
    if (r.total_elements) r.fraction = (double)r.unsharded_elements / (double)r.total_elements;
    if (report) *report = r;
    if (!targets.n) return true;
    if (r.total_elements <= 0)
        return mx_fail(err, MX_EXIT_CONFIG, tolerance.where, "there are no parameters to shard");
    if (r.fraction <= tolerance.fraction) return true;
    mx_fail(err, MX_EXIT_CONFIG, tolerance.where,
            "Unsharded parameter percentage (%.2f%%)exceeds tolerance (%.2f%%).", 100 * r.fraction,
            100 * tolerance.fraction);
    name_largest(top, &targets, err);
    return false;
}
