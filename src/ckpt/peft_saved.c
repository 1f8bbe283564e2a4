/* peft_saved.c — what adapter_config.json of Hugging Face's peft says of parameters that are
 * trained as they are: whole modules are modules_to_save, and biases are trained of all modules, or
 * of those that are adapted. Source: peft 0.21, utils/other.py (_set_trainable);
 * tuners/tuners_utils.py
 * (_get_learnable_bias_state_dict). */
#include "peft.h"

/* Of everything that tensors are in, by its name: how many there are, and are trained. */
typedef struct Counts {
    MxMap all, trained;
    const char **holder;
    int n;
} Counts;

static void count_up(MxMap *map, const char *name, int64_t by) {
    mx_map_set(map, name, mx_map_get(map, name, 0) + by);
}

static void count_all(MxArena *arena, const PeftWholes *wholes, Counts *c) {
    int most = 0;
    mx_map_init(&c->all, arena);
    mx_map_init(&c->trained, arena);
    for (int i = 0; i < wholes->n; i++)
        for (const char *p = wholes->item[i].weight; *p; p++) most += *p == '.';
    c->holder = mx_new_n(arena, const char *, most + 1);
    for (int i = 0; i < wholes->n; i++) {
        const PeftWhole *w = &wholes->item[i];
        for (const char *dot = w->weight; (dot = strchr(dot, '.')); dot++) {
            const char *name = mx_arena_strndup(arena, w->weight, (size_t)(dot - w->weight));
            if (!mx_map_get(&c->all, name, 0)) c->holder[c->n++] = name;
            count_up(&c->all, name, 1);
            count_up(&c->trained, name, w->n_trained == w->n_parts);
        }
    }
}

static bool is_saved(const Counts *c, const char *holder) {
    return mx_map_get(&c->all, holder, 0) == mx_map_get(&c->trained, holder, 0);
}

/* "norm", where the name of nothing else ends so; else as many more words as that needs. peft asks
 * for any end of a name. */
static const char *shortest(const Counts *c, const char *module) {
    for (const char *end = module + strlen(module); end > module;) {
        do end--;
        while (end > module && end[-1] != '.');
        bool is_own = true;
        for (int i = 0; is_own && i < c->n; i++)
            is_own = is_saved(c, c->holder[i]) || !mx_text_has_suffix(c->holder[i], end);
        if (is_own) return end;
    }
    return module;
}

/* Which biases are trained that are in no module which is trained as a whole: "none", "all" of the
 * model's, or those of adapted modules ("lora_only"); NULL = others. */
static const char *biases_of(const PeftWholes *wholes, const bool *is_in_module) {
    int n_all = 0, n_trained = 0, n_adapted = 0, n_of_adapted = 0;
    for (int i = 0; i < wholes->n; i++) {
        const PeftWhole *w = &wholes->item[i];
        if (!w->is_bias || is_in_module[i]) continue;
        bool is_trained = w->n_trained > 0;
        n_all++;
        n_trained += is_trained;
        n_adapted += w->is_of_adapted;
        n_of_adapted += w->is_of_adapted && is_trained;
    }
    if (!n_trained) return "none";
    if (n_trained == n_all) return "all";
    return n_of_adapted == n_trained && n_trained == n_adapted ? "lora_only" : NULL;
}

/* Of one that peft cannot train so. */
static bool refuse(const PeftWhole *w, const char *hint, MxError *err) {
    if (w->n_trained < w->n_parts)
        mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                "\"%s\" is trained as it is, but not all that is in peft's \"%s\"", w->kind,
                w->weight);
    else if (w->is_bias)
        mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                "\"%s\" is trained as it is; peft trains whole modules, all biases or those of all "
                "adapted modules",
                w->kind);
    else
        mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                "\"%s\" is trained as it is; peft trains whole modules, and not all of \"%.*s\" is",
                w->kind, (int)(strrchr(w->weight, '.') - w->weight), w->weight);
    mx_note(err, "hint: %s", hint);
    return false;
}

static const char *module_of(MxArena *arena, const PeftWhole *w) {
    return mx_arena_strndup(arena, w->weight, (size_t)(strrchr(w->weight, '.') - w->weight));
}

/* Whether a module is in one that is trained as a whole. */
static bool is_inside(const MxMap *modules, const char *module) {
    MxArena arena = {.name = "module"};
    bool is = false;
    for (const char *dot = module; !is && (dot = strchr(dot, '.')); dot++)
        is = mx_map_get(modules, mx_arena_strndup(&arena, module, (size_t)(dot - module)), -1) >= 0;
    mx_arena_release(&arena);
    return is;
}

/* Which tensors are in modules that are trained as a whole. */
static const bool *put_modules(MxArena *arena, const PeftWholes *wholes, const PeftModules *modules,
                               MxJson *config) {
    Counts c = {.n = 0};
    MxMap whole, said;
    MxJson *names = NULL;
    bool *is_in_module = mx_new_n(arena, bool, wholes->n + 1);
    count_all(arena, wholes, &c);
    mx_map_init(&whole, arena);
    mx_map_init(&said, arena);
    for (int i = 0; i < wholes->n; i++) {
        const char *module = module_of(arena, &wholes->item[i]);
        is_in_module[i] = wholes->item[i].n_trained && is_saved(&c, module);
        if (is_in_module[i]) mx_map_set(&whole, module, i);
    }
    for (int i = 0; i < wholes->n; i++) {
        const char *module = module_of(arena, &wholes->item[i]);
        if (!is_in_module[i] || is_inside(&whole, module)) continue;
        const char *name = modules->within ? module : shortest(&c, module);
        if (mx_map_get(&said, name, -1) >= 0) continue;
        mx_map_set(&said, name, i);
        if (!names) names = mx_json_put_array(config, "modules_to_save");
        mx_json_push_string(names, name);
    }
    return is_in_module;
}

bool peft_put_wholes(MxArena *arena, const PeftWholes *wholes, const PeftModules *modules,
                     MxJson *config, MxError *err) {
    const bool *is_in_module = put_modules(arena, wholes, modules, config);
    const char *bias = biases_of(wholes, is_in_module);
    for (int i = 0; i < wholes->n; i++) {
        const PeftWhole *w = &wholes->item[i];
        if (w->n_trained && !is_in_module[i] && (!w->is_bias || !bias))
            return refuse(w, modules->hint, err);
    }
    mx_json_set_string(config, "bias", bias);
    if (peft_tied_head(wholes)) mx_json_set_bool(config, "ensure_weight_tying", true);
    return true;
}
