/* gguf.c — a checkpoint as a GGUF file: the tensors of Hugging Face's form under llama.cpp's names.
 * Source:
 * llama.cpp conversion/base.py, llama.py, qwen.py, gemma.py, gguf-py/gguf/tensor_mapping.py,
 * constants.py. */
#include "gguf.h"

#include <math.h>
#include <stdlib.h>

/* ---- what llama.cpp knows */

/* Families. */
struct GgufArch {
    const char *decoder_block, *name;
    bool are_neighbours; /* rotated pairs are */
    bool norms_around;   /* norms after both blocks, before them or not */
    bool sees_windows;   /* layers in turn as the family's; otherwise every token sees all before */
    bool lists_windows;  /* which layers they are of; these are never stretched */
    bool caps_scores;    /* of attention */
    bool sizes_experts;  /* width of experts beside that of dense layers */
    int wide_layers;     /* of the model in which scores are divided by the square root of emb_dim
                            a head, not of a head's width; 0 = there is none */
};

static const GgufArch archs[] = {
    {.decoder_block = "llama2", .name = "llama", .are_neighbours = true},
    {.decoder_block = "mistral", .name = "llama", .are_neighbours = true},
    {.decoder_block = "mixtral", .name = "llama", .are_neighbours = true},
    {.decoder_block = "qwen2", .name = "qwen2"},
    {.decoder_block = "qwen3", .name = "qwen3"},
    {.decoder_block = "qwen3_moe", .name = "qwen3moe", .sizes_experts = true},
    {.decoder_block = "gemma", .name = "gemma"},
    {.decoder_block = "gemma2",
     .name = "gemma2",
     .norms_around = true,
     .sees_windows = true,
     .caps_scores = true,
     .wide_layers = 46},
    {.decoder_block = "gemma3",
     .name = "gemma3",
     .norms_around = true,
     .sees_windows = true,
     .wide_layers = 62},
    {.decoder_block = "olmo3",
     .name = "olmo2",
     .norms_around = true,
     .sees_windows = true,
     .lists_windows = true},
};

/* Names of tensors: Hugging Face's, of a layer behind its number, and llama.cpp's. %d = an expert,
 * whose matrices become one. */
typedef struct Name {
    const char *theirs, *name;
    enum { ANYWAY, AROUND, BEFORE } norms; /* where norms are so */
    bool is_plain;                         /* float32 in any case, as vectors are */
} Name;

static const Name of_model[] = {
    {.theirs = "model.embed_tokens.weight", .name = "token_embd.weight"},
    {.theirs = "model.norm.weight", .name = "output_norm.weight"},
    {.theirs = "lm_head.weight", .name = "output.weight"},
};

static const Name of_layer[] = {
    {.theirs = "input_layernorm.weight", .name = "attn_norm.weight"},
    {.theirs = "self_attn.q_proj.weight", .name = "attn_q.weight"},
    {.theirs = "self_attn.k_proj.weight", .name = "attn_k.weight"},
    {.theirs = "self_attn.v_proj.weight", .name = "attn_v.weight"},
    {.theirs = "self_attn.o_proj.weight", .name = "attn_output.weight"},
    {.theirs = "self_attn.q_proj.bias", .name = "attn_q.bias"},
    {.theirs = "self_attn.k_proj.bias", .name = "attn_k.bias"},
    {.theirs = "self_attn.v_proj.bias", .name = "attn_v.bias"},
    {.theirs = "self_attn.o_proj.bias", .name = "attn_output.bias"},
    {.theirs = "self_attn.q_norm.weight", .name = "attn_q_norm.weight"},
    {.theirs = "self_attn.k_norm.weight", .name = "attn_k_norm.weight"},
    {.theirs = "post_attention_layernorm.weight", .name = "ffn_norm.weight", .norms = BEFORE},
    {.theirs = "post_attention_layernorm.weight",
     .name = "post_attention_norm.weight",
     .norms = AROUND},
    {.theirs = "pre_feedforward_layernorm.weight", .name = "ffn_norm.weight", .norms = AROUND},
    {.theirs = "post_feedforward_layernorm.weight",
     .name = "post_ffw_norm.weight",
     .norms = AROUND},
    {.theirs = "mlp.gate_proj.weight", .name = "ffn_gate.weight"},
    {.theirs = "mlp.up_proj.weight", .name = "ffn_up.weight"},
    {.theirs = "mlp.down_proj.weight", .name = "ffn_down.weight"},
    {.theirs = "mlp.gate.weight", .name = "ffn_gate_inp.weight", .is_plain = true},
    {.theirs = "mlp.experts.%d.gate_proj.weight", .name = "ffn_gate_exps.weight"},
    {.theirs = "mlp.experts.%d.up_proj.weight", .name = "ffn_up_exps.weight"},
    {.theirs = "mlp.experts.%d.down_proj.weight", .name = "ffn_down_exps.weight"},
    {.theirs = "block_sparse_moe.gate.weight", .name = "ffn_gate_inp.weight", .is_plain = true},
    {.theirs = "block_sparse_moe.experts.%d.w1.weight", .name = "ffn_gate_exps.weight"},
    {.theirs = "block_sparse_moe.experts.%d.w3.weight", .name = "ffn_up_exps.weight"},
    {.theirs = "block_sparse_moe.experts.%d.w2.weight", .name = "ffn_down_exps.weight"},
};

static const GgufArch *find_arch(const MxHfModel *model) {
    for (int i = 0; i < MX_COUNT(archs); i++)
        if (!strcmp(archs[i].decoder_block, model->decoder_block)) return &archs[i];
    return NULL;
}

/* ---- what it does not */

static bool refuse(const MxCkptRef *from, const char *what, MxError *err) {
    return mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = from->ref},
                   "--to-gguf makes no such model: %s", what);
}

/* What llama.cpp computes, whatever a file says. Source: llama.cpp src/llama-context.cpp. */
static double usual_amplitude(const MxHfModel *model) {
    return 0.1 * log(model->yarn_factor) + 1;
}

static bool check(const MxCkptRef *from, const MxHfModel *model, const GgufArch *arch,
                  MxArena *arena, MxError *err) {
    if (!arch) {
        MxText known;
        mx_text_init(&known, arena);
        for (int i = 0; i < MX_COUNT(archs); i++)
            mx_text_add(&known, "%s%s", i ? ", " : "", archs[i].decoder_block);
        return mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = from->ref},
                       "--to-gguf: decoder_block \"%s\" is not available yet, wanted one of %s",
                       model->decoder_block, known.data);
    }
    int64_t wide = model->emb_dim / model->n_query_heads;
    int64_t width = hf_layers(model) == arch->wide_layers ? wide : model->head_dim;
    const struct {
        bool is;
        const char *what;
    } lacks[] = {
        {model->lacks && *model->lacks,
         mx_arena_printf(arena, "not available in mxtrain: %s", model->lacks)},
        {model->has_score, "a head of one number in place of logits"},
        {model->window && !arch->sees_windows && model->window < model->length,
         mx_arena_printf(arena, "\"%s\" sees all tokens before, not %lld of %lld (sliding_window)",
                         arch->name, (long long)model->window, (long long)model->length)},
        {model->rotated != 1, "a part of each head is rotated"},
        {model->is_yarn && model->yarn_amplitude > 0 &&
             fabs(model->yarn_amplitude - usual_amplitude(model)) > 1e-4,
         mx_arena_printf(arena, "attention_factor of yarn is %.9g, wanted %.9g",
                         model->yarn_amplitude, usual_amplitude(model))},
        {model->is_yarn && !model->yarn_truncates, "yarn without truncate"},
        {arch->lists_windows && (model->is_yarn || model->rope_factor != 1) && !model->local_theta,
         "a rotation that is stretched in layers with a window, too"},
        {model->sees, "images; --to-gguf without --images writes the text model"},
        {model->query_scalar > 0 && model->query_scalar != (double)width,
         mx_arena_printf(arena, "query_pre_attn_scalar is %.9g, wanted %lld", model->query_scalar,
                         (long long)width)},
        {model->attn_cap > 0 && !arch->caps_scores, "a cap of attention's scores"},
    };
    for (int i = 0; i < MX_COUNT(lacks); i++)
        if (lacks[i].is) refuse(from, lacks[i].what, err);
    return !err->count;
}

/* ---- facts */

static const char *key(GgufExport *x, const char *name) {
    return mx_arena_printf(&x->made.arena, "%s.%s", x->arch->name, name);
}

static void add_rotation(GgufExport *x, const MxHfModel *model) {
    MxGguf *g = &x->facts;
    mx_gguf_add_float(g, key(x, "rope.freq_base"), (double)model->rope_theta);
    if (model->local_theta)
        mx_gguf_add_float(g, key(x, "rope.freq_base_swa"), (double)model->local_theta);
    mx_gguf_add_uint(g, key(x, "rope.dimension_count"), model->head_dim);
    if (model->is_yarn) {
        mx_gguf_add_text(g, key(x, "rope.scaling.type"), "yarn");
        mx_gguf_add_float(g, key(x, "rope.scaling.factor"), model->yarn_factor);
        mx_gguf_add_uint(g, key(x, "rope.scaling.original_context_length"), model->yarn_length);
        if (model->yarn_amplitude > 0)
            mx_gguf_add_float(g, key(x, "rope.scaling.yarn_attn_factor"), model->yarn_amplitude);
        mx_gguf_add_float(g, key(x, "rope.scaling.yarn_beta_fast"), model->yarn_fast);
        mx_gguf_add_float(g, key(x, "rope.scaling.yarn_beta_slow"), model->yarn_slow);
    } else if (model->rope_factor != 1) {
        mx_gguf_add_text(g, key(x, "rope.scaling.type"), "linear");
        mx_gguf_add_float(g, key(x, "rope.scaling.factor"), model->rope_factor);
    }
}

static void add_windows(GgufExport *x, const MxHfModel *model) {
    const MxLayers layers = hf_model_layers(model);
    bool *are = mx_new_n(&x->made.arena, bool, layers.n);
    if (!x->arch->sees_windows) return;
    mx_gguf_add_uint(&x->facts, key(x, "attention.sliding_window"), model->window);
    for (int i = 0; i < layers.n; i++) are[i] = mx_layer_spec(&layers, i)->sees == MX_SEES_WINDOW;
    if (x->arch->lists_windows)
        mx_gguf_add_bools(&x->facts, key(x, "attention.sliding_window_pattern"), are, layers.n);
}

static void add_experts(GgufExport *x, const MxHfModel *model) {
    MxGguf *g = &x->facts;
    if (model->n_experts <= 1) return;
    mx_gguf_add_uint(g, key(x, "expert_count"), model->n_experts);
    mx_gguf_add_uint(g, key(x, "expert_used_count"), model->n_chosen);
    if (x->arch->sizes_experts)
        mx_gguf_add_uint(g, key(x, "expert_feed_forward_length"), model->moe_dim);
}

static void add_facts(GgufExport *x, const MxHfModel *model) {
    MxGguf *g = &x->facts;
    enum { QUANTIZATION_VERSION = 2 };
    int64_t width =
        x->arch->sizes_experts || model->n_experts <= 1 ? model->mlp_dim : model->moe_dim;
    mx_gguf_add_text(g, "general.architecture", x->arch->name);
    mx_gguf_add_text(g, "general.type", "model");
    mx_gguf_add_text(g, "general.name", x->how->name);
    mx_gguf_add_uint(g, "general.file_type", mx_gguf_types[x->how->kind].file_type);
    mx_gguf_add_uint(g, "general.quantization_version", QUANTIZATION_VERSION);
    mx_gguf_add_uint(g, key(x, "vocab_size"), model->vocab_size);
    mx_gguf_add_uint(g, key(x, "block_count"), hf_layers(model));
    mx_gguf_add_uint(g, key(x, "context_length"), model->length);
    mx_gguf_add_uint(g, key(x, "embedding_length"), model->emb_dim);
    mx_gguf_add_uint(g, key(x, "feed_forward_length"), width);
    mx_gguf_add_uint(g, key(x, "attention.head_count"), model->n_query_heads);
    mx_gguf_add_uint(g, key(x, "attention.head_count_kv"), model->n_kv_heads);
    mx_gguf_add_uint(g, key(x, "attention.key_length"), model->head_dim);
    mx_gguf_add_uint(g, key(x, "attention.value_length"), model->head_dim);
    mx_gguf_add_float(g, key(x, "attention.layer_norm_rms_epsilon"), model->epsilon);
    add_windows(x, model);
    if (model->attn_cap > 0)
        mx_gguf_add_float(g, key(x, "attn_logit_softcapping"), model->attn_cap);
    if (model->final_cap > 0)
        mx_gguf_add_float(g, key(x, "final_logit_softcapping"), model->final_cap);
    add_rotation(x, model);
    add_experts(x, model);
}

/* ---- tensors */

/* What a tail of a name is, whose %d may be a number. */
static bool is_tail(const char *tail, const char *form, int64_t *expert) {
    const char *mark = strstr(form, "%d");
    size_t n = mark ? (size_t)(mark - form) : strlen(form);
    *expert = -1;
    if (!mark) return !strcmp(tail, form);
    if (strncmp(tail, form, n)) return false;
    char *end;
    *expert = strtoll(tail + n, &end, 10);
    return end > tail + n && !strcmp(end, mark + 2);
}

/* Their name of a tensor; NULL = it has none. plain, expert: as of Name and is_tail. */
static const char *name_of(GgufExport *x, const char *theirs, bool *plain, int64_t *expert) {
    static const char layers[] = "model.layers.";
    bool is_in_layer = mx_text_has_prefix(theirs, layers);
    const Name *names = is_in_layer ? of_layer : of_model;
    int n = is_in_layer ? MX_COUNT(of_layer) : MX_COUNT(of_model);
    char *tail = NULL;
    int64_t layer = is_in_layer ? strtoll(theirs + strlen(layers), &tail, 10) : 0;
    for (int i = 0; i < n; i++) {
        if (names[i].norms != ANYWAY && (names[i].norms == AROUND) != x->arch->norms_around)
            continue;
        if (!is_tail(is_in_layer ? tail + 1 : theirs, names[i].theirs, expert)) continue;
        *plain = names[i].is_plain;
        return is_in_layer
                   ? mx_arena_printf(&x->made.arena, "blk.%lld.%s", (long long)layer, names[i].name)
                   : names[i].name;
    }
    return NULL;
}

static MxShape stacked(int64_t n, MxShape shape) {
    MxShape out = {.rank = shape.rank + 1, .dim = {n}};
    memcpy(out.dim + 1, shape.dim, (size_t)shape.rank * sizeof *shape.dim);
    return out;
}

/* Source: llama.cpp conversion/base.py, prepare_tensors. */
static MxGgufKind kind_of(const GgufExport *x, const MxTensor *tensor, bool is_plain) {
    const MxShape *shape = &tensor->shape;
    if (is_plain || shape->rank == 1) return MX_GGUF_F32;
    return shape->dim[shape->rank - 1] % mx_gguf_types[x->how->kind].block ? MX_GGUF_F16
                                                                           : x->how->kind;
}

static bool add_output(GgufExport *x, MxMap *by_name, HfItem *item) {
    int64_t expert, n_experts = x->how->hf.model.n_experts;
    bool is_plain;
    const char *name = name_of(x, item->tensor.name, &is_plain, &expert);
    if (!name)
        return mx_fail(x->made.err, MX_EXIT_BAD_INPUT, (MxWhere){.file = x->made.source.ref.ref},
                       "llama.cpp has no name for \"%s\" of \"%s\"", item->tensor.name,
                       x->arch->name);
    const MxGgufKind kind = kind_of(x, &item->tensor, is_plain);
    item->tensor.dtype = mx_gguf_types[kind].from;
    int at = (int)mx_map_get(by_name, name, x->n);
    GgufOutput *out = &x->outputs[at];
    if (at == x->n) {
        mx_map_set(by_name, name, x->n++);
        out->n = expert < 0 ? 1 : (int)n_experts;
        out->items = mx_new_n(&x->made.arena, HfItem *, out->n);
        out->array = (MxGgufArray){name, item->tensor.shape, kind};
        if (expert >= 0) out->array.shape = stacked(n_experts, item->tensor.shape);
    }
    out->items[expert < 0 ? 0 : expert] = item;
    return true;
}

/* What llama3's way to stretch divides each frequency by, in float32 as the original. Source:
 * transformers modeling_rope_utils.py (_compute_llama3_parameters). */
static const float *stretch_of(MxArena *arena, const MxHfModel *model) {
    int64_t n = model->head_dim / 2;
    float *out = mx_new_n(arena, float, n);
    float factor = (float)model->stretch_factor, length = (float)model->stretch_length;
    float low = (float)model->stretch_low, high = (float)model->stretch_high;
    for (int64_t i = 0; i < n; i++) {
        float part = (float)(2 * i) / (float)model->head_dim;
        float wave = (float)(2 * M_PI) / (1 / powf((float)model->rope_theta, part));
        float smooth = (length / wave - low) / (high - low);
        out[i] = wave < length / high  ? 1
                 : wave > length / low ? factor
                                       : 1 / ((1 - smooth) / factor + smooth);
    }
    return out;
}

static bool plan(GgufExport *x) {
    HfMaker *m = &x->made;
    const MxHfModel *model = &x->how->hf.model;
    MxMap by_name;
    mx_map_init(&by_name, &m->arena);
    x->outputs = mx_new_n(&m->arena, GgufOutput, m->n + 1);
    bool ok = true;
    for (int i = 0; i < m->n; i++) ok = add_output(x, &by_name, &m->items[i]) && ok;
    if (ok && model->is_stretched) {
        MxShape shape = {.rank = 1, .dim = {model->head_dim / 2}};
        x->outputs[x->n++] = (GgufOutput){.array = {"rope_freqs.weight", shape, MX_GGUF_F32}};
        x->stretch = stretch_of(&m->arena, model);
    }
    return ok;
}

bool mx_gguf_export(const MxCkptRef *from, const MxGgufExport *how, const char *path, MxText *notes,
                    MxError *err) {
    MxGgufExport as_theirs = *how;
    MxHfModel *model = &as_theirs.hf.model;
    GgufExport x = {.how = &as_theirs, .arch = find_arch(model)};
    if (!check(from, model, x.arch, notes->arena, err)) return false;
    model->makes_pairs = x.arch->are_neighbours;
    model->makes_ones = true;
    bool ok = hf_make_plan(&x.made, from, &as_theirs.hf, err) && plan(&x);
    mx_gguf_init(&x.facts, &x.made.arena);
    if (ok) add_facts(&x, model);
    ok = ok && gguf_add_vocabulary(&x.made.arena, &how->tokenizer, model->vocab_size, &x.facts,
                                   notes, err);
    for (int i = 0; ok && !path && i < x.n; i++)
        mx_text_add(notes, "%s%s -> %s %s\n",
                    x.outputs[i].n ? x.outputs[i].items[0]->tensor.name : "rope_scaling",
                    x.outputs[i].n > 1 ? " and those of other experts" : "",
                    x.outputs[i].array.name,
                    mx_shape_text(&x.made.arena, x.outputs[i].array.shape));
    ok = ok && (!path || gguf_write(&x, path));
    if (ok)
        mx_text_add(notes, "result: %s, %d tensors, matrices in %s\n", x.arch->name, x.n,
                    mx_gguf_types[how->kind].name);
    mx_arena_release(&x.made.arena);
    return ok;
}
