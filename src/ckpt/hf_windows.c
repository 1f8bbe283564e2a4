/* hf_windows.c — the members of config.json that say which layers have a window. Source:
 * transformers 4.51 and 5.23, models/<type>/configuration_<type>.py. */
#include "hf.h"

#include <math.h>

/* Whether all layers slide; if some do, it is a lack. */
static bool slides(HfReader *r, const MxJson *types) {
    int64_t n_sliding = 0, n = (int64_t)mx_json_length(types), first = 0;
    for (int64_t i = 0; i < n; i++) {
        const char *type = mx_json_string(mx_json_at(types, (size_t)i));
        n_sliding += type && !strcmp(type, "sliding_attention");
        if (!type || (strcmp(type, "sliding_attention") && strcmp(type, "full_attention")))
            n_sliding = -n - 1;
    }
    if (!n) { /* layers from max_window_layers on */
        n = r->model->n_layers;
        const MxJson *before = hf_get(r->json, "max_window_layers");
        if (!before || !mx_json_int(before, &first)) first = 28;
        n_sliding = first < n ? n - first : 0;
    }
    const char *key = types ? "layer_types" : "max_window_layers";
    if (n_sliding && n_sliding != n) hf_lack(r, key, mx_json_get(r->json, key));
    return n_sliding == n;
}

/* After so many layers one sees all; layer_types goes before it. */
static void read_pattern(HfReader *r, const HfMember *m) {
    int64_t period = r->family->period * mx_family_a_name(r->family), found = period;
    const MxJson *value = hf_get(r->json, m->theirs);
    if (r->names->window != MX_HF_WINDOW_TURNS || !value || hf_get(r->json, "layer_types")) return;
    if (!mx_json_int(value, &found) || found != period) hf_lack(r, m->theirs, value);
}

static void read_window(HfReader *r, const HfMember *m) {
    MxHfWindow window = r->names->window;
    bool is_missing = !mx_json_get(r->json, m->theirs);
    bool is_null = is_missing ? !r->names->default_window : !hf_get(r->json, m->theirs);
    const MxJson *types = hf_get(r->json, "layer_types");
    if (window == MX_HF_WINDOW_TURNS) {
        hf_read_size(r, m->theirs, m->most, r->names->default_window, &r->model->window);
        return;
    }
    if (window == MX_HF_WINDOW_NEVER || is_null) return;
    if (window == MX_HF_WINDOW_SAID && !hf_flag(r, "use_sliding_window")) return;
    if ((window == MX_HF_WINDOW_SAID || types) && !slides(r, types)) return;
    hf_read_size(r, m->theirs, m->most, r->names->default_window, &r->model->window);
}

static void take_window(const MxConfig *c, MxHfModel *model) {
    bool is_slid = !strcmp(c->attention_type, "local_sliding");
    bool has_window = is_slid || model->names->window == MX_HF_WINDOW_TURNS;
    model->window = has_window ? c->sliding_window_size : 0;
}

static void write_window(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    if (names->window == MX_HF_WINDOW_SAID) {
        mx_json_set_bool(out, "use_sliding_window", model->window > 0);
        mx_json_set_int(out, "max_window_layers", model->window ? 0 : model->n_layers);
    }
    if (model->window)
        mx_json_set_int(out, "sliding_window", model->window);
    else if (names->window)
        mx_json_set_number(out, "sliding_window", NAN); /* null */
}

static void yaml_window(const MxHfModel *model, MxText *t) {
    bool is_slid = model->window && model->names->window != MX_HF_WINDOW_TURNS;
    const char *type = model->o_groups  ? "compressed"
                       : model->kv_rank ? "mla"
                       : is_slid        ? "local_sliding"
                                        : "global";
    mx_text_add(t, "attention_type: %s\n", type);
    if (model->window) mx_text_add(t, "sliding_window_size: %lld\n", (long long)model->window);
}

static bool check_window(const MxHfModel *model, const MxHfNames *names, MxWhere where,
                         MxError *err) {
    return !model->window || names->window ||
           mx_fail(err, MX_EXIT_BAD_INPUT, where, "sliding_window_size: %s has no window",
                   names->architecture);
}

static bool fits_window(const MxConfig *c, const MxHfNames *names, MxError *err) {
    (void)names;
    static const char *const types[] = {"global", "local_sliding", "mla", "compressed"};
    bool is_so = false;
    for (int i = 0; i < MX_COUNT(types); i++) is_so |= !strcmp(c->attention_type, types[i]);
    return hf_must_be(c, MX_KEY_attention_type, is_so, "global or local_sliding", err);
}

// clang-format off
const HfMember hf_window_members[] = {
    {.theirs = "sliding_window", HF_SIZE_OF(window, sliding_window_size), .most = INT32_MAX, .agrees = true,
     .read = read_window, .take = take_window, .write = write_window, .yaml = yaml_window,
     .check = check_window, .fits = fits_window},
    {.theirs = "sliding_window_pattern", .read = read_pattern},
    {0},
};
// clang-format on
