/* conversion.c — plans a conversion. The source becomes a tree under the state's names, with
 * separate layers if they are to be stacked differently; mx_ckpt_place gives the destination of
 * each leaf; leaves that go into one array are its pieces. Everything that does not fit is reported
 * at once, before anything is written. */
#include "conversion.h"

#include "hf.h"

#include <stdlib.h>

typedef struct Maker {
    MxArena *arena;
    const MxConvert *how;
    CkptConversion *conversion;
    MxStacking *stackings; /* [group] */
    MxMap by_path;         /* of targets */
    int cap;
    MxError *err;
} Maker;

static bool refuse(const Maker *p, const char *path, const char *what) {
    return mx_fail(p->err, MX_EXIT_BAD_INPUT, (MxWhere){.file = p->conversion->from.ref.ref},
                   "\"%s\" %s", path, what);
}

/* ---- what is there */

/* Groups in which a train state may lie, as a hint. */
static void hint_groups(const Maker *p) {
    const CkptFile *f = &p->conversion->from;
    MxText text;
    mx_text_init(&text, p->arena);
    const char *last = "";
    for (int i = 0; i < f->n && text.len < 200; i++) {
        size_t n = strcspn(f->arrays[i].path, "/");
        if (!f->arrays[i].path[n] || !strncmp(last, f->arrays[i].path, n + 1)) continue;
        last = f->arrays[i].path;
        mx_text_add(&text, "%s%.*s", text.len ? ", " : "", (int)n, last);
    }
    if (text.len)
        mx_note(p->err, "hint: the groups there are %s; FILE.h5:GROUP names one", text.data);
}

/* Stacks that are not of layers alone. Source: MaxText layers/nnx_decoders.py. */
static bool check_stack(const Maker *p, const char *path) {
    return !strstr(path, "/pipeline_module/") ||
           refuse(p, path, "is stacked for a pipeline; only its name can be converted");
}

static bool check_contents(const Maker *p) {
    const CkptFile *f = &p->conversion->from;
    if (!f->survey.is_sure) {
        mx_fail(p->err, MX_EXIT_BAD_INPUT, (MxWhere){.file = f->ref.ref},
                "no parameters in it: wanted decoder/… or token_embedder/… below model/, "
                "params/params/, params/, model_params/, base/ or nothing");
        hint_groups(p);
        return false;
    }
    bool ok = true, restacks = p->how->scan >= 0 || p->how->scan_axis >= 0;
    for (int i = 0; i < f->survey.n; i++) {
        const char *path = f->arrays[i].path;
        if (!f->survey.entries[i].row)
            ok = refuse(p, path, "belongs to no part of a train state");
        else if (restacks)
            ok = check_stack(p, path) && ok;
    }
    return ckpt_check_floats(&f->survey, p->err) && ok;
}

/* ---- how it will be stacked */

/* Whether layers must be taken apart: some are not as they are wanted. */
static bool must_split(const Maker *p) {
    const CkptSurvey *s = &p->conversion->from.survey;
    MxForm form = p->conversion->form;
    const MxRestack *restack = &p->how->restack;
    for (int i = 0; i < s->n_groups; i++) {
        const CkptGroup *g = &s->groups[i];
        if (g->is_unscanned && form.is_scanned) return true;
        if (!g->is_scanned) continue;
        if (!form.is_scanned || form.scan_axis != s->scan_axis || restack->decoder_block ||
            restack->cycle)
            return true;
    }
    return false;
}

/* The family whose layers cannot be stacked here: of a folder of Hugging Face's, or of a block that
 * a manifest or an option names. NULL = they can, as far as is known. */
static const MxFamily *nesting_family(const Maker *p, const char *decoder_block) {
    const CkptHf *hf = p->conversion->from.hf;
    const MxFamily *family = hf              ? hf_family_of(&hf->model)
                             : decoder_block ? mx_family_find(decoder_block)
                                             : NULL;
    return family && ((hf && family->first_hash) || family->never_stacks) ? family : NULL;
}

static void choose_form(Maker *p) {
    const CkptSurvey *s = &p->conversion->from.survey;
    const MxConvert *how = p->how;
    MxForm *form = &p->conversion->form;
    form->is_linen = how->layout ? !strcmp(how->layout, "linen") : s->is_linen;
    bool is_hf =
        p->conversion->from.hf; /* which has no form of ours: as mxtrain writes by default */
    bool stacks = is_hf && !nesting_family(p, NULL);
    form->is_scanned = how->scan < 0 ? s->is_scanned || stacks : how->scan;
    form->scan_axis = how->scan_axis >= 0 ? how->scan_axis : s->is_scanned ? s->scan_axis : 1;
}

/* The decoder block that a manifest's config names, or NULL. */
static const char *block_in_manifest(MxArena *arena, const MxJson *manifest) {
    const char *block = ckpt_config_said(arena, manifest, MX_KEY_decoder_block);
    return *block ? block : NULL;
}

/* Runs of a family whose first layers are not in its stacks, by a key that files do not have. */
static bool has_first_ones(const MxRuns *runs) {
    int n;
    const MxFamily *const *families = mx_families(&n);
    for (int i = 0; runs && i < n; i++)
        if (families[i]->runs == runs && families[i]->first_hash) return true;
    return false;
}

static bool choose_stackings(Maker *p) {
    CkptFile *f = &p->conversion->from;
    bool ok = true;
    MxRestack restack = p->how->restack;
    if (!restack.decoder_block && !f->note)
        restack.decoder_block = block_in_manifest(p->arena, f->ref.manifest);
    const MxFamily *nests = nesting_family(p, restack.decoder_block);
    if (nests)
        return mx_fail(p->err, MX_EXIT_BAD_INPUT, (MxWhere){.file = f->ref.ref},
                       "layers of %s cannot be stacked%s; --scan-layers false keeps them one by "
                       "one%s",
                       nests->decoder_block, nests->never_stacks ? "" : " here",
                       nests->never_stacks ? ", as runs do" : ", and a run reads and writes both");
    p->stackings = mx_new_n(p->arena, MxStacking, f->survey.n_groups + 1);
    bool is_asked = p->how->restack.decoder_block || p->how->restack.cycle;
    for (int i = 0; i < f->survey.n_groups; i++) {
        const CkptGroup *g = &f->survey.groups[i];
        const char *evidence = NULL;
        if (g->is_scanned && !is_asked && (g->how.period || !g->n_rest))
            p->stackings[i] = g->how;
        else
            p->stackings[i] = ckpt_stacking(g, &restack, f->note, f->arrays, f->n, &evidence);
        if (has_first_ones(p->stackings[i].runs)) {
            mx_fail(p->err, MX_EXIT_BAD_INPUT, (MxWhere){.file = f->ref.ref},
                    "its layers would be stacked inside of %s, which is not available yet here; "
                    "--scan-layers false keeps them one by one, and a run reads and writes both",
                    p->stackings[i].runs->outer);
            ok = false;
        }
        if (!evidence || strcmp(g->name, "layers")) continue;
        p->conversion->evidence = evidence;
        p->conversion->cycle = p->stackings[i].period;
    }
    return ok;
}

/* ---- adapters */

/* What the result holds of the parameters, and whether of all else. */
static const struct {
    bool only_params, weights, adapters;
} holds[] = {
    [MX_ADAPTERS_STAY] = {false, true, true},
    [MX_ADAPTERS_MERGED] = {true, true, false},
    [MX_ADAPTERS_ALONE] = {true, false, true},
};

static bool is_kept(const Maker *p, const CkptEntry *entry) {
    bool only_params = p->how->params_only || holds[p->how->adapters].only_params;
    if (!entry->row->is_param) return !only_params;
    bool is_adapter = ckpt_is_adapter(entry->path) ||
                      (p->how->adapters == MX_ADAPTERS_ALONE && ckpt_is_head(entry->path));
    return is_adapter ? holds[p->how->adapters].adapters : holds[p->how->adapters].weights;
}

/* The file with the weights takes the place of the source. */
static bool find_base(Maker *p) {
    const MxAdapterFacts *facts = &p->how->facts;
    CkptFile *from = &p->conversion->from;
    MxWhere where = {.file = from->ref.ref};
    bool has_weights = p->conversion->lora.has_weights;
    if (facts->alpha <= 0)
        mx_fail(p->err, MX_EXIT_BAD_INPUT, where,
                "the lora_alpha of its adapters is not known; --lora-alpha tells it, or --config");
    if (has_weights && facts->is_base_said)
        return mx_fail(p->err, MX_EXIT_BAD_INPUT, where,
                       "its adapters have weights beside them; --base is for those that have none");
    if (has_weights) return true;
    bool ok = facts->base
                  ? ckpt_open(p->arena, facts->base, from, p->err)
                  : mx_fail(p->err, MX_EXIT_BAD_INPUT, where,
                            "the weights below its adapters are not known; --base names them");
    if (!ok && facts->base_hint) mx_note(p->err, "%s", facts->base_hint);
    return ok;
}

static bool find_adapters(Maker *p) {
    int failures = p->err->count;
    return p->how->adapters == MX_ADAPTERS_STAY ||
           (ckpt_lora_find(p->arena, &p->conversion->from, &p->conversion->lora, p->err) &&
            (p->how->adapters != MX_ADAPTERS_MERGED || find_base(p)) && p->err->count == failures);
}

/* ---- targets */

static CkptTarget *new_target(Maker *p, MxPlace place, int count, int inner) {
    CkptConversion *conversion = p->conversion;
    if (conversion->n == p->cap) {
        int cap = p->cap ? 2 * p->cap : 256;
        conversion->targets = mx_arena_grow(p->arena, conversion->targets, (size_t)p->cap,
                                            (size_t)cap, sizeof *conversion->targets);
        p->cap = cap;
    }
    mx_map_set(&p->by_path, place.path, conversion->n);
    int *pieces = mx_new_n(p->arena, int, count);
    for (int i = 0; i < count; i++) pieces[i] = -1;
    CkptTarget *target = &conversion->targets[conversion->n++];
    *target = (CkptTarget){.path = place.path,
                           .dtype = place.dtype,
                           .shape = place.shape,
                           .scan_dim = place.scan_dim,
                           .inner = inner,
                           .n = count,
                           .pieces = pieces};
    return target;
}

/* Where a layer's leaf sits in a stack of the result. */
static void set_stack(const Maker *p, const CkptEntry *entry, MxLeaf *leaf) {
    const CkptRow *row = entry->row;
    const char *tree = ckpt_tree_part(row, leaf->path);
    CkptSpot spot = tree ? ckpt_spot(tree) : (CkptSpot){0};
    if (spot.where != CKPT_LAYER) return;
    const char *prefix =
        mx_arena_printf(p->arena, "%.*s", (int)(tree - leaf->path) + spot.head, leaf->path);
    const CkptGroup *group = &p->conversion->from.survey.groups[entry->group];
    MxStacking how = p->stackings[entry->group];
    if (spot.number >= how.first)
        leaf->stack = mx_stack_of(p->arena, prefix, group->name, how, spot.number - how.first,
                                  group->n_layers - how.first, spot.tail);
}

/* How the result keeps a leaf. */
static MxQuant quant_of(const Maker *p, const char *path) {
    static const char dir[] = "model/";
    const MxTree *model = p->how->quantized;
    int at = model && mx_text_has_prefix(path, dir) ? mx_tree_find(model, path + strlen(dir)) : -1;
    return at < 0 ? (MxQuant){0} : model->leaves[at].quant;
}

static bool check_quant(const Maker *p, const char *source, const CkptTarget *target) {
    const char *why =
        target->quant.type ? mx_quant_why_not(p->arena, target->quant, target->shape) : NULL;
    return !why || refuse(p, source,
                          mx_arena_printf(p->arena, "cannot be kept in %s: %s",
                                          mx_qtype_name(target->quant.type), why));
}

static bool add_piece(Maker *p, int i) {
    CkptConversion *conversion = p->conversion;
    MxLeaf *leaf = &conversion->leaves.leaves[i];
    const CkptEntry *entry = &conversion->from.survey.entries[conversion->pieces[i].entry];
    const char *source = entry->array->path;
    if (leaf->stack.count && leaf->shape.rank + (leaf->stack.inner > 0) >= MX_MAX_RANK)
        return refuse(p, source, "has too many dims to be stacked");
    MxPlace place = mx_ckpt_place(p->arena, conversion->form, leaf);
    if (!place.path) {
        conversion->n_reference_left++;
        return true;
    }
    bool is_weight = entry->row->is_tree && !entry->row->is_random;
    if (p->how->casts && is_weight && mx_dtype_is_float(place.dtype))
        place.dtype = p->how->param_dtype;
    MxQuant quant = quant_of(p, leaf->path);
    if (quant.type) place.dtype = MX_F32; /* of what is quantised */
    int count = place.scan_dim < 0 ? 1 : leaf->stack.count;
    int index = place.scan_dim < 0 ? 0 : leaf->stack.index;
    int64_t found = mx_map_get(&p->by_path, place.path, -1);
    CkptTarget *target =
        found < 0 ? new_target(p, place, count, leaf->stack.inner) : &conversion->targets[found];
    if (!mx_shape_equal(target->shape, place.shape) || target->dtype != place.dtype)
        return refuse(
            p, source,
            mx_arena_printf(p->arena, "is %s %s; the other layers' are %s, to be stacked as %s",
                            mx_dtype_name(place.dtype), mx_shape_text(p->arena, leaf->shape),
                            mx_dtype_name(target->dtype), mx_shape_text(p->arena, target->shape)));
    if (index >= target->n || target->pieces[index] >= 0)
        return refuse(p, source, "and another array go to the same place");
    target->pieces[index] = i;
    target->is_text = entry->array->is_text;
    if (quant.type) quant = ckpt_quant_in_stack(quant, place.scan_dim);
    target->quant =
        quant.type && target->inner ? ckpt_quant_in_stack(quant, place.scan_dim) : quant;
    return index > 0 || check_quant(p, source, target);
}

/* Stacks need every layer. */
static bool check_target(Maker *p, const CkptTarget *target) {
    int n_missing = 0, first = -1;
    for (int i = target->n - 1; i >= 0; i--)
        if (target->pieces[i] < 0) {
            n_missing++;
            first = i;
        }
    if (!n_missing) return true;
    return refuse(p, target->path,
                  mx_arena_printf(
                      p->arena, "cannot be stacked: %d of %d layers lack it, the first at place %d",
                      n_missing, target->n, first));
}

static int by_path(const void *a, const void *b) {
    return strcmp(((const CkptTarget *)a)->path, ((const CkptTarget *)b)->path);
}

static bool collect_targets(Maker *p) {
    CkptConversion *conversion = p->conversion;
    const CkptSurvey *s = &conversion->from.survey;
    bool ok = true;
    mx_map_init(&p->by_path, p->arena);
    for (int i = 0; i < conversion->leaves.n; i++) {
        const CkptEntry *entry = &s->entries[conversion->pieces[i].entry];
        if (!is_kept(p, entry)) continue;
        const CkptGroup *g = entry->group >= 0 ? &s->groups[entry->group] : NULL;
        if (p->stackings && g && !g->is_scanned && !g->is_unscanned) {
            conversion->n_random_left++;
            continue;
        }
        if (p->stackings && g) set_stack(p, entry, &conversion->leaves.leaves[i]);
        ok = add_piece(p, i) && ok;
    }
    bool is_whole = true;
    for (int i = 0; i < conversion->n; i++)
        is_whole = check_target(p, &conversion->targets[i]) && is_whole;
    if (!is_whole)
        mx_note(p->err, "hint: layers that differ take turns; --decoder-block or --layer-cycle "
                        "says how many make a block");
    if (conversion->n)
        qsort(conversion->targets, (size_t)conversion->n, sizeof *conversion->targets, by_path);
    return ok && is_whole;
}

/* Weights that were in few bits while their adapters were trained count as what they then were. */
static void note_quants(CkptConversion *conversion, const MxTree *model) {
    static const char dir[] = "model/";
    for (int i = 0; model && i < conversion->leaves.n; i++) {
        const char *path = conversion->leaves.leaves[i].path;
        int at = mx_text_has_prefix(path, dir) ? mx_tree_find(model, path + strlen(dir)) : -1;
        if (at >= 0) conversion->pieces[i].quant = model->leaves[at].quant;
    }
}

/* Stacks beside layers that stand alone, as those with n-gram memories, are neither made here nor
 * taken apart. */
static bool check_divided(const Maker *p, bool splits) {
    const CkptSurvey *s = &p->conversion->from.survey;
    bool has_memories = s->is_divided;
    for (int i = 0; i < s->n && !has_memories; i++)
        has_memories = s->entries[i].tree && strstr(s->entries[i].tree, "/engram/");
    bool restacks = splits || p->how->scan >= 0 || p->how->scan_axis >= 0;
    bool stacks = s->is_divided || p->conversion->form.is_scanned;
    return !has_memories || !restacks || !stacks ||
           mx_fail(p->err, MX_EXIT_BAD_INPUT, (MxWhere){.file = p->conversion->from.ref.ref},
                   "some of its layers stand alone beside the stacks of others (n-gram memories, "
                   "experts by a table), which is not available yet here; a run reads and writes "
                   "layers in stacks and one by one");
}

bool ckpt_conversion_make(MxArena *arena, const CkptFile *from, const MxConvert *how,
                          CkptConversion *out, MxError *err) {
    Maker p = {.arena = arena, .how = how, .conversion = out, .err = err};
    bool merges = how->adapters == MX_ADAPTERS_MERGED;
    *out = (CkptConversion){.from = *from};
    if (!check_contents(&p) || !find_adapters(&p) || (merges && !check_contents(&p))) return false;
    choose_form(&p);
    bool splits = merges || how->quantized || must_split(&p);
    if (!check_divided(&p, splits)) return false;
    if (!ckpt_leaves(arena, &out->from.survey, splits, &out->leaves, &out->pieces,
                     &out->n_random_left, err) ||
        (merges && !ckpt_lora_match(arena, &out->lora, &out->leaves, &out->merges, err)))
        return false;
    if (merges) note_quants(out, how->facts.weights);
    if (splits && out->form.is_scanned && !choose_stackings(&p)) return false;
    out->note = out->form.is_scanned ? ""
                : splits
                    ? ckpt_stack_note(arena, out->from.survey.groups, out->from.survey.n_groups)
                : out->from.note ? out->from.note
                                 : "";
    return collect_targets(&p);
}
