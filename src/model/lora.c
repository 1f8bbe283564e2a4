/* lora.c — the modules that get low-rank adapters, and the adapters' parameters; those that are
 * trained as they are beside adapters; also storing adapted modules in few bits. Names, shapes,
 * initialisers and replication are MaxText's (utils/lora_utils.py with qwix _src/providers/lora.py
 * @0.1.8), but every layer has its own random A. */
#include <mx/model.h>

#include "adapter.h"

#include <math.h>
#include <stdlib.h>

/* ---- which modules */

/* The layer's number may stand in the path or not. */
static const char *with_any_layer(MxArena *arena, const char *pattern) {
    static const char mark[] = "layers/", any[] = "layers(?:_[0-9]+|/[0-9]+)?/";
    MxText out;
    mx_text_init(&out, arena);
    for (const char *p = pattern, *at; *p; p = at + strlen(mark)) {
        at = strstr(p, mark);
        mx_text_add(&out, "%.*s", (int)(at ? at - p : (ptrdiff_t)strlen(p)), p);
        if (!at) break;
        mx_text_add(&out, "%s", any);
    }
    return out.data;
}

/* A parameter that a pattern can choose, under the path that checkpoints have. One that is adapted
 * is told by its module. A matrix of experts is told by its own path, or, all of them together, by
 * that of what they are in; so are those that are trained as they are. */
typedef struct Module {
    const char *path, *around; /* around NULL = it has its module to itself */
    int leaf;
    MxMatch match;
} Module;

/* No family's own pattern is for experts. Source: MaxText configs/post_train/lora_module_path.yml,
 * none of whose patterns matches a module of experts @e591f30c. */
static Module *list_modules(MxArena *arena, const MxModel *model, bool has_experts, int *n) {
    Module *modules = mx_new_n(arena, Module, model->params.n);
    *n = 0;
    for (int i = 0; i < model->params.n; i++) {
        const MxLeaf *leaf = &model->params.leaves[i];
        const char *path = mx_config_path(model->config, leaf);
        const char *dir = mx_path_dir(arena, path);
        Module module = {.path = leaf->n_batch ? path : dir, .leaf = i};
        if (!leaf->n_contract || leaf->kind == MX_KIND_LORA_PARAM) continue;
        if (leaf->n_batch && !has_experts) continue;
        if (leaf->n_batch) module.around = dir;
        modules[(*n)++] = module;
    }
    return modules;
}

/* Biases that no gradient of the loss reaches are left alone, and so is what is no parameter. */
static Module *list_params(MxArena *arena, const MxModel *model, int *n) {
    Module *params = mx_new_n(arena, Module, model->params.n);
    *n = 0;
    for (int i = 0; i < model->params.n; i++) {
        const MxLeaf *leaf = &model->params.leaves[i];
        bool is_trainable = leaf->kind == MX_KIND_PARAM && !leaf->is_unoptimized;
        for (int k = 0; k < model->n_routers; k++) is_trainable &= model->routers[k].bias != i;
        const char *path = mx_config_path(model->config, leaf);
        if (is_trainable)
            params[(*n)++] = (Module){.path = path, .around = mx_path_dir(arena, path), .leaf = i};
    }
    return params;
}

/* What a key asks for. */
typedef struct Asked {
    MxKey key;
    const char *words; /* as they were given */
    const char *pattern;
    const char *of, *noun; /* for messages */
} Asked;

/* ---- a pattern that matches nothing */

enum { MOST_SHOWN = 5 };

/* How many words of the pattern occur in a path, at least nearly; two letters are like anything. */
static int likeness(MxArena *arena, const char *pattern, const char *path) {
    const char *parts[16];
    char *save = NULL;
    int n = 0, count = 0;
    for (char *part = strtok_r(mx_arena_strdup(arena, path), "/", &save); part && n < 16;
         part = strtok_r(NULL, "/", &save))
        parts[n++] = part;
    static const char word[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    for (const char *p = pattern; *(p += strcspn(p, word)); p += strspn(p, word)) {
        const char *wanted = mx_arena_strndup(arena, p, strspn(p, word));
        count += strlen(wanted) > 2 && mx_nearest(wanted, parts, n);
    }
    return count;
}

static bool report_no_match(MxArena *arena, const MxModel *model, Asked asked,
                            const Module *modules, int n, MxError *err) {
    MxText near;
    MxMap seen;
    mx_text_init(&near, arena);
    mx_map_init(&seen, arena);
    int best = 0, n_shown = 0;
    for (int i = 0; i < n; i++) {
        int like = likeness(arena, asked.words, modules[i].path);
        if (like > best) best = like;
    }
    for (int i = 0; i < n && n_shown < MOST_SHOWN; i++) {
        if (likeness(arena, asked.words, modules[i].path) < best) continue;
        if (mx_map_get(&seen, modules[i].path, -1) >= 0) continue;
        mx_map_set(&seen, modules[i].path, i);
        mx_text_add(&near, "%s%s", n_shown++ ? ", " : "", modules[i].path);
    }
    mx_config_fail(err, model->config, asked.key, "\"%s\" matches no %s", asked.words, asked.of);
    mx_note(err, "hint: %s %s: %s", best ? "similar" : "some of the", asked.noun, near.data);
    return false;
}

/* The strongest match of any module; each module has its own. */
static MxMatch match_modules(const MxRegex *regex, Module *modules, int n) {
    MxMatch best = MX_MATCH_NONE;
    for (int i = 0; i < n; i++) {
        const Module *module = &modules[i];
        MxMatch match = mx_regex_match(regex, module->path);
        MxMatch around = module->around ? mx_regex_match(regex, module->around) : MX_MATCH_NONE;
        modules[i].match = around > match ? around : match;
        if (modules[i].match > best) best = modules[i].match;
    }
    return best;
}

/* MaxText hands the pattern to qwix, which matches whole paths. One that matches none of them is
 * looked for inside them.
 *   wanted  how modules match that are chosen */
static bool choose(MxArena *arena, const MxModel *model, Asked asked, Module *modules, int n,
                   MxMatch *wanted, MxError *err) {
    const char *why;
    MxRegex *regex = mx_regex_new(arena, asked.pattern, &why);
    if (!regex)
        return mx_config_fail(err, model->config, asked.key,
                              "\"%s\" is not a regular expression: %s", asked.pattern, why);
    *wanted = match_modules(regex, modules, n);
    if (*wanted == MX_MATCH_GAVE_UP)
        return mx_config_fail(err, model->config, asked.key, "\"%s\" takes too long to match",
                              asked.pattern);
    return *wanted != MX_MATCH_NONE || report_no_match(arena, model, asked, modules, n, err);
}

/* ---- parameters */

/* Experts have an adapter each, and ranks have those of the experts that they have. */
static void lead(const MxLeaf *of, MxLeaf *leaf) {
    MxShape each = leaf->shape;
    leaf->n_batch = of->n_batch;
    leaf->is_of_experts = of->is_of_experts;
    leaf->n_contract = 1;
    leaf->shape.rank += of->n_batch;
    for (int d = 0; d < of->n_batch; d++) {
        leaf->shape.dim[d] = of->shape.dim[d];
        leaf->axes[d] = of->axes[d];
    }
    for (int d = 0; d < each.rank; d++) leaf->shape.dim[of->n_batch + d] = each.dim[d];
}

/* LoRA+ (Hayou et al. 2024): what comes behind A learns faster, and so do vectors. Source: peft
 * 0.21, optimizers/loraplus.py. */
static bool learns_faster(const MxLeaf *of, const char *suffix) {
    bool is_vector = of->shape.rank == 1 || of->n_contract == of->shape.rank ||
                     mx_text_has_suffix(of->path, "/bias");
    if (!strcmp(suffix, "_lora_w")) return is_vector;
    return strcmp(suffix, "_lora_a") != 0;
}

static void add_beside(MxArena *arena, MxModel *model, int base, const char *suffix, MxLeaf leaf) {
    const MxLeaf *of = &model->params.leaves[base];
    leaf.path = mx_arena_printf(arena, "%s%s", of->path, suffix);
    leaf.kind = MX_KIND_LORA_PARAM;
    leaf.dtype = of->dtype;
    leaf.rate = learns_faster(of, suffix) ? model->config->lora_plus_ratio : 0;
    leaf.stack = of->stack;
    if (of->stack.path) leaf.stack.path = mx_arena_printf(arena, "%s%s", of->stack.path, suffix);
    mx_tree_add(&model->params, leaf);
}

static void add_leaf(MxArena *arena, MxModel *model, int base, const char *suffix, MxLeaf leaf) {
    lead(&model->params.leaves[base], &leaf);
    add_beside(arena, model, base, suffix, leaf);
}

static void add_adapter(MxArena *arena, MxModel *model, int base) {
    const MxLeaf *of = &model->params.leaves[base];
    int64_t rank = model->config->lora_rank, in = 1, out = 1;
    bool has_out = of->n_batch + of->n_contract < of->shape.rank;
    for (int i = of->n_batch; i < of->shape.rank; i++)
        *(i < of->n_batch + of->n_contract ? &in : &out) *= of->shape.dim[i];
    Adapter *adapter = &model->adapters[base];
    *adapter = (Adapter){.a = model->params.n, .b = model->params.n + 1, .m = -1, .whole = -1};
    add_leaf(arena, model, base, "_lora_a",
             (MxLeaf){.shape = MX_SHAPE(in, rank),
                      .init = {.kind = MX_INIT_UNIFORM, .std = sqrt(2 / (double)in)}});
    add_leaf(arena, model, base, "_lora_b",
             (MxLeaf){.shape = has_out ? MX_SHAPE(rank, out) : MX_SHAPE(rank),
                      .init = {.kind = MX_INIT_ZEROS}});
    if (!model->config->lora_use_dora) return;
    adapter->m = model->params.n;
    add_leaf(arena, model, base, "_lora_m",
             (MxLeaf){.shape = MX_SHAPE(out), .init = {.kind = MX_INIT_ZEROS}});
}

/* Magnitudes are of the outputs of one matrix, and what is dropped is an input of its product: the
 * output matrix is W + A B before it meets any. */
static bool check_module(const MxModel *model, const Module *module, MxError *err) {
    const MxConfig *c = model->config;
    const MxLeaf *leaf = &model->params.leaves[module->leaf];
    const char *what = leaf->n_batch                          ? "is several matrices"
                       : leaf->n_contract == leaf->shape.rank ? "is the scale of a norm"
                                                              : NULL;
    if (c->lora_use_dora && what)
        return mx_config_fail(err, c, MX_KEY_lora_use_dora,
                              "\"%s\" %s; wanted modules of one matrix (lora.lora_module_path)",
                              module->path, what);
    if (module->leaf == model->logits) what = "is the output matrix";
    return !mx_config_drops_lora(c) || !what ||
           mx_config_fail(err, c, MX_KEY_lora_dropout,
                          "\"%s\" %s, whose adapter has no input of its own to drop elements of; "
                          "wanted other modules (lora.lora_module_path), or 0",
                          module->path, what);
}

/* ---- weights in few bits */

/* Why a kernel cannot be kept so, NULL = it is from now on. Blocks lie along the last dim that is
 * contracted, as qwix has it. tile  0 = as QLoRA has it */
static const char *keep(MxArena *arena, MxLeaf *leaf, MxQtype type, int64_t tile) {
    enum { TILE = 64 };
    MxQuant quant = {.type = type, .dim = leaf->n_batch + leaf->n_contract - 1, .tile = tile};
    if (leaf->n_contract == leaf->shape.rank) return NULL; /* the scale of a norm */
    int64_t size = leaf->shape.dim[quant.dim];
    if (!quant.tile) quant.tile = mx_qtypes[type].tile;
    if (!quant.tile) quant.tile = size < TILE ? size : TILE;
    const char *why = mx_quant_why_not(arena, quant, leaf->shape);
    if (why)
        return mx_arena_printf(arena, "\"%s\" cannot be kept in %s: %s", leaf->path,
                               mx_qtype_name(type), why);
    leaf->quant = quant;
    leaf->dtype = MX_F32; /* of the values of its codes */
    return NULL;
}

/* Those beside adapters. */
static bool keep_base(MxArena *arena, MxModel *model, int base, MxError *err) {
    const MxConfig *c = model->config;
    MxQtype type;
    bool is_known = mx_qtype_parse(c->lora_weight_qtype, &type);
    MX_ASSERT(is_known);
    const char *why = keep(arena, &model->params.leaves[base], type, c->lora_tile_size);
    return !why || mx_config_fail(
                       err, c, c->lora_tile_size ? MX_KEY_lora_tile_size : MX_KEY_lora_weight_qtype,
                       "%s", why);
}

static bool adapt(MxArena *arena, MxModel *model, MxError *err) {
    const MxConfig *c = model->config;
    const char *said = c->lora_module_path;
    Asked asked = {.key = MX_KEY_lora_module_path,
                   .pattern = with_any_layer(arena, said ? said : model->family->lora_modules),
                   .of = "module that can be adapted",
                   .noun = "modules"};
    asked.words = said ? said : asked.pattern;
    int n;
    Module *modules = list_modules(arena, model, said != NULL, &n);
    MxLora *lora = &model->lora;
    *lora = (MxLora){.pattern = asked.pattern, .scale = c->lora_alpha / (double)c->lora_rank};
    MxMatch wanted;
    if (!choose(arena, model, asked, modules, n, &wanted, err)) return false;
    lora->modules = mx_new_n(arena, const char *, n);
    for (int i = 0; i < n; i++) {
        if (modules[i].match != wanted) continue;
        const MxLeaf *leaf = &model->params.leaves[modules[i].leaf];
        if (!check_module(model, &modules[i], err)) return false;
        if (!c->scan_layers || !leaf->stack.index)
            lora->modules[lora->n_modules++] = modules[i].path;
        add_adapter(arena, model, modules[i].leaf);
        if (*c->lora_weight_qtype && !keep_base(arena, model, modules[i].leaf, err)) return false;
    }
    return true;
}

/* ---- parameters that are trained as they are */

/* Divided among ranks and updated as the parameter itself would be. */
static void add_whole(MxArena *arena, MxModel *model, int base) {
    MxLeaf leaf = model->params.leaves[base];
    model->adapters[base].whole = model->params.n;
    leaf.stands_for = leaf.path;
    leaf.init = (MxInit){.kind = MX_INIT_ZEROS};
    add_beside(arena, model, base, "_lora_w", leaf);
}

static bool train_whole(MxArena *arena, MxModel *model, MxError *err) {
    const MxConfig *c = model->config;
    const char *said = c->lora_modules_to_save;
    if (!said) return true;
    Asked asked = {.key = MX_KEY_lora_modules_to_save,
                   .words = said,
                   .pattern = with_any_layer(arena, said),
                   .of = "parameter or module that can be trained as it is",
                   .noun = "parameters"};
    int n;
    Module *params = list_params(arena, model, &n);
    MxLora *lora = &model->lora;
    MxMatch wanted;
    if (!choose(arena, model, asked, params, n, &wanted, err)) return false;
    lora->whole = mx_new_n(arena, const char *, n);
    for (int i = 0; i < n; i++) {
        if (params[i].match != wanted) continue;
        const MxStack *stack = &model->params.leaves[params[i].leaf].stack;
        if (model->adapters[params[i].leaf].a >= 0)
            return mx_config_fail(
                err, c, MX_KEY_lora_modules_to_save,
                "\"%s\" is adapted too (lora.lora_module_path); wanted one of both",
                params[i].path);
        if (!c->scan_layers || !stack->index) lora->whole[lora->n_whole++] = params[i].path;
        add_whole(arena, model, params[i].leaf);
    }
    return true;
}

bool model_add_adapters(MxArena *arena, MxModel *model, MxError *err) {
    enum { MOST_BESIDE = 3 };
    int n = (1 + MOST_BESIDE) * model->params.n;
    model->adapters = mx_new_n(arena, Adapter, n);
    for (int i = 0; i < n; i++) model->adapters[i] = (Adapter){-1, -1, -1, -1};
    return adapt(arena, model, err) && train_whole(arena, model, err);
}

bool mx_model_keep(MxArena *arena, MxModel *model, MxQtype type, MxError *err) {
    int n;
    const char *why, *pattern = with_any_layer(arena, model->family->lora_modules);
    MxRegex *regex = mx_regex_new(arena, pattern, &why);
    Module *modules = list_modules(arena, model, false, &n);
    MX_ASSERT(regex);
    if (model->maps.kernels.n)
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                       "kernels that are made of a teacher's (learn_to_init_mode) are not kept in "
                       "%s; the run's folder \"folded\" has them as they are",
                       mx_qtype_name(type));
    MxMatch wanted = match_modules(regex, modules, n);
    if (wanted == MX_MATCH_NONE)
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "no kernel of %s is kept in %s yet",
                       model->config->decoder_block, mx_qtype_name(type));
    for (int i = 0; i < n; i++) {
        if (modules[i].match != wanted) continue;
        why = keep(arena, &model->params.leaves[modules[i].leaf], type, 0);
        if (why) return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "%s", why);
    }
    return true;
}
