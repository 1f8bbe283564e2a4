/* survey.c — the contents of a file: each array under the state's names, the layers of each kind,
 * and the dim of layers in stacked arrays. It is determined from paths and shapes alone, so it
 * works for files of any family; the tables are in layout.c and stack.c. */
#include <mx/ckpt.h>

#include "lora.h"

static MxWhere in(const CkptSurvey *s) {
    return (MxWhere){.file = s->name};
}

/* ---- names */

/* One layer's arrays under one name, however the file spells it ("layers/3/…"). */
static const char *spelled_out(MxArena *arena, const CkptEntry *entry) {
    int prefix = (int)(entry->tree - entry->path) + entry->spot.head;
    return mx_arena_printf(arena, "%.*s%s_%d/%s", prefix, entry->path, entry->spot.name,
                           entry->spot.number, entry->spot.tail);
}

static CkptEntry name_array(MxArena *arena, const char *model_prefix, const MxH5Array *array) {
    CkptEntry entry = {.array = array, .group = -1};
    entry.path = ckpt_state_path(arena, model_prefix, array->path, &entry.row);
    entry.tree = entry.path ? ckpt_tree_part(entry.row, entry.path) : NULL;
    if (!entry.tree) return entry;
    entry.spot = ckpt_spot(entry.tree);
    if (entry.spot.where == CKPT_LAYER) {
        entry.path = spelled_out(arena, &entry);
        entry.tree = ckpt_tree_part(entry.row, entry.path);
        entry.spot = ckpt_spot(entry.tree);
    }
    return entry;
}

/* Parameters below two names would be two models, of which one would be read unasked. */
static bool check_prefix(MxArena *arena, const CkptSurvey *s, const MxH5Array *arrays,
                         MxError *err) {
    const char *other = ckpt_other_prefix(arrays, s->n, s->model_prefix);
    if (!other) return true;
    const char *names[] = {s->model_prefix, other};
    for (int i = 0; i < MX_COUNT(names); i++) {
        size_t n = strlen(names[i]);
        names[i] = n ? mx_arena_strndup(arena, names[i], n - 1) : "the root";
    }
    mx_fail(err, MX_EXIT_BAD_INPUT, in(s), "holds parameters below %s and below %s", names[0],
            names[1]);
    mx_note(err, "hint: name the group that is meant: FILE.h5:%s", names[0]);
    return false;
}

bool ckpt_survey_names(MxArena *arena, const char *name, const MxH5Array *arrays, int n,
                       CkptSurvey *out, MxError *err) {
    CkptSurvey *s = out;
    int failures = err->count;
    *s = (CkptSurvey){.name = name, .n = n, .entries = mx_new_n(arena, CkptEntry, n + 1)};
    s->model_prefix = ckpt_model_prefix(arrays, n, &s->is_sure);
    mx_map_init(&s->by_path, arena);
    check_prefix(arena, s, arrays, err);
    for (int i = 0; i < n; i++) {
        CkptEntry *entry = &s->entries[i];
        *entry = name_array(arena, s->model_prefix, &arrays[i]);
        if (!entry->path) continue;
        if (entry->row->linen && mx_text_has_prefix(arrays[i].path, entry->row->linen) &&
            strcmp(entry->row->linen, entry->row->nnx))
            s->is_linen = true;
        if (mx_text_has_suffix(arrays[i].path, "/value")) s->has_values = true;
        int64_t before = mx_map_get(&s->by_path, entry->path, -1);
        if (before >= 0)
            mx_fail(err, MX_EXIT_BAD_INPUT, in(s), "\"%s\" and \"%s\" are both %s",
                    arrays[before].path, arrays[i].path, entry->path);
        mx_map_set(&s->by_path, entry->path, i);
    }
    if (mx_text_has_prefix(s->model_prefix, "params/")) s->is_linen = true;
    return err->count == failures;
}

/* ---- layers of each kind */

/* Layers one by one beside such blocks come before these (family.h, first_hash). */
static void set_apart(CkptSurvey *s) {
    bool has_blocks = false;
    for (int i = 0; i < s->n; i++) {
        const CkptSpot *spot = &s->entries[i].spot;
        has_blocks |= s->entries[i].tree && spot->where == CKPT_BLOCK &&
                      !strcmp(spot->outer, MX_STACK_BLOCKS);
    }
    for (int i = 0; has_blocks && i < s->n; i++)
        if (s->entries[i].tree && s->entries[i].spot.where == CKPT_LAYER)
            s->entries[i].spot.where = CKPT_FIRST;
}

static void collect_groups(MxArena *arena, CkptSurvey *s) {
    MxMap by_key;
    mx_map_init(&by_key, arena);
    s->groups = mx_new_n(arena, CkptGroup, s->n + 1);
    for (int i = 0; i < s->n; i++) {
        CkptEntry *e = &s->entries[i];
        if (!e->tree || e->spot.where == CKPT_ALONE) continue;
        const char *key = mx_arena_printf(arena, "%.*s%s", e->spot.head, e->tree, e->spot.name);
        e->group = (int)mx_map_get(&by_key, key, -1);
        if (e->group < 0) {
            mx_map_set(&by_key, key, e->group = s->n_groups++);
            s->groups[e->group] = (CkptGroup){.key = key, .name = e->spot.name};
        }
    }
}

/* Whether an entry is one of the arrays that tell how the layers of its group are kept. */
static bool tells(const CkptEntry *e) {
    return e->group >= 0 && !e->row->is_random;
}

bool ckpt_is_stack(const CkptEntry *e) {
    return e->spot.where == CKPT_FLAT || e->spot.where == CKPT_BLOCK;
}

/* n  places, from the entry's on */
static bool note_places(const CkptSurvey *s, const CkptEntry *e, int64_t n, uint64_t *seen,
                        MxError *err) {
    if (e->spot.number + n > CKPT_MAX_PERIOD)
        return mx_fail(err, MX_EXIT_BAD_INPUT, in(s), "\"%s\": more than %d layers in a block",
                       e->array->path, CKPT_MAX_PERIOD);
    for (int64_t i = 0; i < n; i++) *seen |= UINT64_C(1) << (e->spot.number + i);
    return true;
}

/* How many of the lowest bits are set, in a row; -1 if others are too. */
static int count_places(uint64_t seen) {
    int n = 0;
    while (n < 64 && seen >> n & 1) n++;
    return n == 64 || !(seen >> n) ? n : -1;
}

bool ckpt_is_run_in_rest(const CkptEntry *e) {
    return e->spot.where == CKPT_REST && e->spot.inner > 1;
}

static bool take_entries(CkptSurvey *s, MxError *err) {
    bool ok = true;
    for (int i = 0; i < s->n; i++) {
        CkptEntry *e = &s->entries[i];
        if (e->tree && strstr(e->tree, MX_STACK_RECALL)) s->is_scanned = s->is_divided = true;
        if (!tells(e)) continue;
        CkptGroup *g = &s->groups[e->group];
        if (e->spot.where == CKPT_FIRST) {
            if (e->spot.number >= g->how.first) g->how.first = e->spot.number + 1;
            continue;
        }
        if (e->spot.where == CKPT_LAYER) {
            g->is_unscanned = true;
            if (e->spot.number >= g->n_layers) g->n_layers = e->spot.number + 1;
            continue;
        }
        g->is_scanned = s->is_scanned = true;
        if (ckpt_is_run_in_rest(e)) continue; /* its length is not known yet */
        if (e->spot.where == CKPT_REST)
            ok = note_places(s, e, 1, &g->rests, err) && ok;
        else {
            g->how.outer = e->spot.outer;
            bool is_block = e->spot.where == CKPT_BLOCK;
            if (is_block) ok = note_places(s, e, e->spot.inner, &g->places, err) && ok;
            if (is_block) g->how.place = e->spot.place;
            if (is_block) g->how.runs = e->spot.runs;
            g->how.period = is_block ? 1 : g->how.period;
            g->is_flat = g->is_flat || !is_block;
        }
    }
    return ok;
}

/* ---- the dim of the layers */

int ckpt_n_inside(const CkptEntry *e) {
    return e->spot.where == CKPT_BLOCK && e->spot.inner > 1 ? e->spot.inner : 0;
}

int ckpt_layers_dim(const CkptEntry *e, int axis) {
    MxShape shape = e->array->shape;
    shape.rank -= ckpt_n_inside(e) > 0;
    return shape.rank < 1 ? -1 : ckpt_scan_dim(e->row, shape, axis);
}

int64_t ckpt_n_layers(const CkptEntry *e, int axis) {
    enum { MAX_LAYERS = 10000 };
    int dim = ckpt_layers_dim(e, axis);
    if (dim < 0) return -1;
    int64_t length = e->array->shape.dim[dim];
    if (ckpt_n_inside(e) && e->array->shape.dim[dim + 1] != ckpt_n_inside(e)) return -1;
    return length < 1 || length > MAX_LAYERS ? -1 : length;
}

/* The length that most stacks of each group have (a majority vote), into n_blocks; how many arrays
 * have another. */
static int vote(CkptSurvey *s, int axis, MxArena *scratch) {
    int64_t *best = mx_new_n(scratch, int64_t, s->n_groups + 1);
    int *lead = mx_new_n(scratch, int, s->n_groups + 1), n_others = 0;
    for (int i = 0; i < s->n; i++) {
        const CkptEntry *e = &s->entries[i];
        if (!tells(e) || !ckpt_is_stack(e)) continue;
        int64_t length = ckpt_n_layers(e, axis);
        if (!lead[e->group]) best[e->group] = length;
        lead[e->group] += length == best[e->group] ? 1 : -1;
    }
    for (int i = 0; i < s->n; i++) {
        const CkptEntry *e = &s->entries[i];
        if (!tells(e) || !ckpt_is_stack(e)) continue;
        s->groups[e->group].n_blocks = (int)best[e->group];
        n_others += ckpt_n_layers(e, axis) != best[e->group] || best[e->group] < 1;
    }
    return n_others;
}

static bool no_layers(MxArena *arena, const CkptSurvey *s, const CkptEntry *e, MxError *err) {
    return mx_fail(err, MX_EXIT_BAD_INPUT, in(s), "\"%s\" has shape %s, and no dim of layers in it",
                   e->array->path, mx_shape_text(arena, e->array->shape));
}

static bool choose_axis(MxArena *arena, CkptSurvey *s, int preferred, MxError *err) {
    const int axes[] = {preferred, 1, 0, 2, 3, 4, 5};
    int best = -1, best_others = 0;
    for (int i = 0; i < MX_COUNT(axes); i++) {
        if (axes[i] < 0) continue;
        int n_others = vote(s, axes[i], arena);
        if (best < 0 || n_others < best_others) {
            best = axes[i];
            best_others = n_others;
        }
        if (!n_others) break;
    }
    s->scan_axis = best;
    vote(s, best, arena);
    for (int i = 0; i < s->n && best_others; i++) {
        const CkptEntry *e = &s->entries[i];
        if (!tells(e) || !ckpt_is_stack(e)) continue;
        int n_blocks = s->groups[e->group].n_blocks;
        if (n_blocks < 1)
            no_layers(arena, s, e, err);
        else if (ckpt_n_layers(e, best) != n_blocks)
            mx_fail(err, MX_EXIT_BAD_INPUT, in(s),
                    "\"%s\" has shape %s; most of %s have %d layers at dim %d", e->array->path,
                    mx_shape_text(arena, e->array->shape), s->groups[e->group].key, n_blocks, best);
    }
    return !best_others;
}

/* ---- what all of that means for a group */

/* Adapters may be those of some layers only. */
static bool is_adapters(const CkptSurvey *s, int group) {
    for (int i = 0; i < s->n; i++)
        if (s->entries[i].group == group && tells(&s->entries[i]) &&
            !ckpt_is_adapter(s->entries[i].path))
            return false;
    return true;
}

/* Every layer from 0 on has something. */
static bool check_layers(MxArena *arena, const CkptSurvey *s, int group, MxError *err) {
    const CkptGroup *g = &s->groups[group];
    bool *seen = mx_new_n(arena, bool, g->n_layers);
    int n_seen = 0, first = 0;
    for (int i = 0; i < s->n; i++)
        if (s->entries[i].group == group && tells(&s->entries[i])) {
            n_seen += !seen[s->entries[i].spot.number];
            seen[s->entries[i].spot.number] = true;
        }
    if (n_seen == g->n_layers || is_adapters(s, group)) return true;
    while (seen[first]) first++;
    return mx_fail(err, MX_EXIT_BAD_INPUT, in(s), "%s_%d is missing (%d of %d layers are there)",
                   g->key, first, n_seen, g->n_layers);
}

static int n_in_runs(const MxRuns *runs) {
    int n = 0;
    for (int r = 0; r < MX_MOST_RUNS && runs->run[r].name; r++) n += runs->run[r].n;
    return n;
}

static bool note_runs_in_rest(MxArena *arena, CkptSurvey *s, int group, MxError *err) {
    bool ok = true;
    for (int i = 0; i < s->n; i++) {
        const CkptEntry *e = &s->entries[i];
        if (e->group != group || !tells(e) || !ckpt_is_run_in_rest(e)) continue;
        int64_t n = ckpt_n_layers(e, s->scan_axis);
        ok = (n < 1 ? no_layers(arena, s, e, err)
                    : note_places(s, e, n, &s->groups[group].rests, err)) &&
             ok;
    }
    return ok;
}

static bool finish_group(MxArena *arena, CkptSurvey *s, int i, MxError *err) {
    CkptGroup *g = &s->groups[i];
    if (g->is_scanned && g->is_unscanned)
        return mx_fail(err, MX_EXIT_BAD_INPUT, in(s), "%s are there stacked and one by one",
                       g->key);
    if (g->is_unscanned) return check_layers(arena, s, i, err);
    if (!g->is_scanned) return true; /* random numbers only */
    if (!note_runs_in_rest(arena, s, i, err)) return false;
    /* Runs tell how long a block is, also where only some of its layers have adapters. */
    int cycle = count_places(g->places), n_rest = count_places(g->rests);
    if (g->how.runs && (cycle == n_in_runs(g->how.runs) || is_adapters(s, i)))
        cycle = n_in_runs(g->how.runs);
    else if (g->how.runs)
        cycle = -1;
    if (g->is_flat && g->places)
        return mx_fail(err, MX_EXIT_BAD_INPUT, in(s), "%s are there in one stack and in blocks",
                       g->key);
    if (cycle < 0 || n_rest < 0)
        return mx_fail(err, MX_EXIT_BAD_INPUT, in(s), "%s: a layer of a block is missing", g->key);
    bool may_have_first = g->n_blocks && !g->how.runs && !strcmp(g->how.outer, MX_STACK_BLOCKS);
    if (may_have_first && !g->how.first && is_adapters(s, i))
        return mx_fail(err, MX_EXIT_BAD_INPUT, in(s),
                       "%s: only layers of blocks have adapters, so how many come before is not "
                       "known",
                       g->key);
    g->how.period = cycle;
    g->n_rest = n_rest;
    g->n_layers = g->how.first + g->n_blocks * (cycle ? cycle : 1) + n_rest;
    return true;
}

bool ckpt_survey(MxArena *arena, const char *name, const MxH5Array *arrays, int n, int scan_axis,
                 CkptSurvey *out, MxError *err) {
    if (!ckpt_survey_names(arena, name, arrays, n, out, err)) return false;
    set_apart(out);
    collect_groups(arena, out);
    bool ok = take_entries(out, err);
    ok = ok && choose_axis(arena, out, scan_axis, err);
    for (int i = 0; ok && i < out->n_groups; i++) ok = finish_group(arena, out, i, err) && ok;
    return ok;
}

const char *ckpt_form_text(MxArena *arena, const CkptSurvey *s) {
    const char *names = s->is_linen ? "linen names" : "nnx names";
    const char *values = s->has_values ? ", arrays called \"value\"" : "";
    const char *below = mx_arena_printf(
        arena, "%s%s", *s->model_prefix ? " below " : " without prefix", s->model_prefix);
    for (int i = 0; i < s->n_groups; i++)
        if (s->groups[i].is_scanned)
            return mx_arena_printf(arena, "%s%s%s, layers stacked at dim %d", names, below, values,
                                   s->scan_axis);
    return mx_arena_printf(arena, "%s%s%s, layers one by one", names, below, values);
}

/* ---- what can be a parameter */

void ckpt_refuse_integers(const char *file, const MxH5Array *array, MxError *err) {
    mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = file}, "\"%s\" holds %s; weights are floats",
            array->path, array->is_text ? "text" : mx_dtype_name(array->dtype));
    if (array->dtype == MX_U16)
        mx_note(err, "hint: if they are the bits of bfloat16, mxconvert --assume-bfloat16 makes a "
                     "checkpoint of them");
}

/* Moments may be codes, with scales in a tree of their own. */
static bool holds_numbers(const CkptEntry *e) {
    MxDtype dtype = e->array->dtype;
    return mx_dtype_is_float(dtype) || (e->row->has_moments && dtype == MX_U8);
}

bool ckpt_check_floats(const CkptSurvey *survey, MxError *err) {
    int failures = err->count;
    for (int i = 0; i < survey->n; i++) {
        const CkptEntry *e = &survey->entries[i];
        bool is_weight = e->tree && (e->row->is_param || e->row->has_moments);
        if (is_weight && !holds_numbers(e)) ckpt_refuse_integers(survey->name, e->array, err);
    }
    return err->count == failures;
}
