/* hf_meta.c — Meta's folders, as Llama was released: params.json, consolidated.00.pth, … (files of
 * torch.save, one for each device on which it ran, with parts of the matrices), optionally
 * tokenizer.model. Such a folder is read like the Hugging Face folder that transformers' converter
 * makes from it. Source: github.com/meta-llama/llama-models models/llama3/{args,model}.py
 * @01dc8ce4; transformers 4.57 models/llama/convert_llama_weights_to_hf.py. */
#include "hf.h"

/* Their members that mean something here, and those that do not. */
static const char *const members[] = {
    "dim",
    "n_layers",
    "n_heads",
    "n_kv_heads",
    "vocab_size",
    "norm_eps",
    "multiple_of",
    "rope_theta",
    "max_seq_len",
    "ffn_dim_multiplier",
    "max_batch_size",
    "use_scaled_rope",
    "rope_scaling_factor",
};

static const struct {
    const char *theirs, *meta; /* of a layer, behind its number */
} tensors[] = {
    {"model.embed_tokens.weight", "tok_embeddings.weight"},
    {"model.norm.weight", "norm.weight"},
    {"lm_head.weight", "output.weight"},
    {"self_attn.q_proj.weight", "attention.wq.weight"},
    {"self_attn.k_proj.weight", "attention.wk.weight"},
    {"self_attn.v_proj.weight", "attention.wv.weight"},
    {"self_attn.o_proj.weight", "attention.wo.weight"},
    {"mlp.gate_proj.weight", "feed_forward.w1.weight"},
    {"mlp.down_proj.weight", "feed_forward.w2.weight"},
    {"mlp.up_proj.weight", "feed_forward.w3.weight"},
    {"input_layernorm.weight", "attention_norm.weight"},
    {"post_attention_layernorm.weight", "ffn_norm.weight"},
};

const char *hf_meta_file(MxArena *arena, int shard) {
    return mx_arena_printf(arena, "consolidated.%02d.pth", shard);
}

const char *hf_meta_name(MxArena *arena, const char *theirs) {
    static const char layers[] = "model.layers.";
    bool is_layer = mx_text_has_prefix(theirs, layers);
    const char *number = theirs + strlen(layers), *dot = is_layer ? strchr(number, '.') : NULL;
    int i = 0;
    while (strcmp(tensors[i].theirs, dot ? dot + 1 : theirs)) {
        i++;
        MX_ASSERT(i < MX_COUNT(tensors));
    }
    return dot ? mx_arena_printf(arena, "layers.%.*s.%s", (int)(dot - number), number,
                                 tensors[i].meta)
               : tensors[i].meta;
}

/* ---- params.json */

static bool check_members(const HfReader *r) {
    const char *name;
    MxJson *value;
    bool ok = true;
    for (size_t i = 0; mx_json_member(r->json, i, &name, &value); i++) {
        int k = 0;
        while (k < MX_COUNT(members) && strcmp(members[k], name)) k++;
        if (k == MX_COUNT(members))
            ok = mx_fail(r->err, MX_EXIT_BAD_INPUT, (MxWhere){.file = r->path},
                         "%s: unrecognized; wanted params.json of a Llama 1, 2 or 3", name);
    }
    return ok;
}

/* What no member tells: the vocabulary, where it says -1, and the dtype. */
static bool look_at_weights(const HfReader *r, int64_t *vocab, MxDtype *dtype) {
    MxArena arena = {.name = "weights"};
    MxTensors *file;
    const char *dir = mx_path_dir(&arena, r->path);
    int n = 0;
    while (mx_file_exists(mx_path_join(&arena, dir, hf_meta_file(&arena, n)))) n++;
    bool ok =
        mx_tensors_open(&arena, mx_path_join(&arena, dir, hf_meta_file(&arena, 0)), &file, r->err);
    const MxTensor *head = ok ? mx_tensors_find(file, "output.weight") : NULL;
    *dtype = head ? head->dtype : MX_F32;
    *vocab = head && head->shape.rank == 2 ? n * head->shape.dim[0] : 1;
    mx_arena_release(&arena);
    return ok;
}

/* The width of their feed-forward unit: two thirds of four times the model's, a factor, and up to
 * the next multiple. */
static int64_t find_width(int64_t dim, double factor, int64_t multiple) {
    int64_t width = (int64_t)(factor * (double)(8 * dim / 3));
    return (width + multiple - 1) / multiple * multiple;
}

static void set_rope(const HfReader *r, MxJson *out) {
    const double usual_theta = 10000, long_theta = 500000, usual_factor = 8;
    const int64_t usual = 2048, longer = 8192, longest = 131072;
    double theta, factor;
    int64_t length;
    hf_read_number(r, r->json, "rope_theta", usual_theta, &theta);
    hf_read_number(r, r->json, "rope_scaling_factor", usual_factor, &factor);
    bool is_scaled = hf_flag(r, "use_scaled_rope");
    hf_read_size(r, "max_seq_len", INT32_MAX,
                 is_scaled             ? longest
                 : theta >= long_theta ? longer
                                       : usual,
                 &length);
    mx_json_set_number(out, "rope_theta", theta);
    mx_json_set_int(out, "max_position_embeddings", length);
    if (!is_scaled) return;
    if (!hf_get(r->json, "rope_scaling_factor"))
        mx_warn("%s: use_scaled_rope without rope_scaling_factor is taken for Llama 3.1's factor "
                "of 8; that of Llama 3.2 is 32 (rope_stretch_factor)",
                r->path);
    MxJson *rope = mx_json_put_object(out, "rope_scaling");
    mx_json_set_string(rope, "rope_type", "llama3");
    mx_json_set_number(rope, "factor", factor);
    mx_json_set_number(rope, "low_freq_factor", 1);
    mx_json_set_number(rope, "high_freq_factor", 4);
    mx_json_set_int(rope, "original_max_position_embeddings", longer);
}

bool hf_meta_config(HfReader *r) {
    int64_t dim, heads, kv_heads, layers, multiple, said_vocab, vocab;
    double factor, epsilon;
    MxDtype dtype;
    int failures = r->err->count;
    MxJson *out = mx_json_object(r->arena);
    if (!check_members(r) || !look_at_weights(r, &vocab, &dtype)) return false;
    hf_read_size(r, "dim", HF_LARGEST_SIZE, 0, &dim);
    hf_read_size(r, "n_layers", HF_LARGEST_SIZE, 0, &layers);
    hf_read_size(r, "n_heads", HF_LARGEST_SIZE, 0, &heads);
    hf_read_size(r, "n_kv_heads", HF_LARGEST_SIZE, heads, &kv_heads);
    hf_read_size(r, "multiple_of", HF_LARGEST_SIZE, 256, &multiple);
    hf_read_number(r, r->json, "ffn_dim_multiplier", 1, &factor);
    hf_read_number(r, r->json, "norm_eps", 1e-5, &epsilon);
    if (!mx_json_int(hf_get(r->json, "vocab_size"), &said_vocab) || said_vocab != -1)
        hf_read_size(r, "vocab_size", HF_LARGEST_SIZE, vocab, &vocab);
    if (r->err->count != failures) return false;
    mx_json_push_string(mx_json_put_array(out, "architectures"), "LlamaForCausalLM");
    mx_json_set_string(out, "model_type", "llama");
    mx_json_set_int(out, "hidden_size", dim);
    mx_json_set_int(out, "intermediate_size", find_width(dim, factor, multiple));
    mx_json_set_int(out, "num_hidden_layers", layers);
    mx_json_set_int(out, "num_attention_heads", heads);
    mx_json_set_int(out, "num_key_value_heads", kv_heads);
    mx_json_set_int(out, "vocab_size", vocab);
    mx_json_set_string(out, "hidden_act", "silu");
    mx_json_set_number(out, "rms_norm_eps", epsilon);
    mx_json_set_bool(out, "tie_word_embeddings", false);
    mx_json_set_string(out, "torch_dtype", mx_dtype_name(dtype == MX_BF16 ? MX_BF16 : MX_F32));
    set_rope(r, out);
    r->json = out;
    r->model->is_meta = true;
    return r->err->count == failures;
}

/* ---- parts of tensors */

/* The dim along which n parts of a shape make the whole one; -1 = they do not. */
static int find_cut(const MxShape *part, const MxShape *whole, int n) {
    int cut = -1, n_other = 0;
    if (part->rank != whole->rank) return -1;
    for (int d = 0; d < part->rank; d++) {
        bool is_cut = part->dim[d] != whole->dim[d];
        n_other += is_cut;
        if (is_cut && part->dim[d] * n == whole->dim[d]) cut = d;
    }
    return n_other == 1 ? cut : -1;
}

bool hf_meta_join(MxArena *arena, MxTensors *const *shards, int n, HfLink *link) {
    const MxTensor *first = link->tensor;
    int cut = first ? find_cut(&first->shape, &link->map.theirs, n) : -1;
    if (cut < 0) return true; /* all have all of it, or it is no part */
    MxTensor *whole = mx_new(arena, MxTensor);
    HfParts *parts = mx_new(arena, HfParts);
    *parts = (HfParts){.cut = cut, .n = n, .file = shards};
    parts->tensor = mx_new_n(arena, const MxTensor *, n);
    for (int i = 0; i < n; i++) {
        const MxTensor *part = parts->tensor[i] = mx_tensors_find(shards[i], first->name);
        if (!part || part->dtype != first->dtype || !mx_shape_equal(part->shape, first->shape))
            return false;
    }
    *whole = *first;
    whole->shape = link->map.theirs;
    link->tensor = whole;
    link->parts = parts;
    return true;
}

bool hf_meta_read(const HfParts *p, void *out, MxError *err) {
    const MxShape *shape = &p->tensor[0]->shape;
    int64_t outer = 1, run = (int64_t)mx_dtype_bytes(p->tensor[0]->dtype);
    bool ok = true;
    for (int d = 0; d < shape->rank; d++) *(d < p->cut ? &outer : &run) *= shape->dim[d];
    for (int i = 0; ok && i < p->n; i++) {
        MxArena scratch = {.name = "part"};
        char *part = mx_arena_alloc(&scratch, (size_t)mx_tensor_bytes(p->tensor[i]) + 1);
        ok = mx_tensors_read_raw(p->file[i], p->tensor[i], part, err);
        for (int64_t o = 0; ok && o < outer; o++)
            memcpy((char *)out + (o * p->n + i) * run, part + o * run, (size_t)run);
        mx_arena_release(&scratch);
    }
    return ok;
}
