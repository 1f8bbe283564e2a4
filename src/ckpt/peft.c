/* peft.c — adapters in the files of Hugging Face's peft: adapter_config.json and
 * adapter_model.safetensors. lora_A [r, in] and lora_B [out, r] are the transposes of A and B. */
#include "hf.h"
#include "lora.h"

#include <stdlib.h>

static const char config_name[] = PEFT_CONFIG;
static const char tensors_name[] = "adapter_model.safetensors";

/* One adapter array under their name. */
typedef struct Peer {
    int row; /* of the adapted kernel, in hf_rows */
    bool is_b;
    const char *name;
    MxShape shape;
} Peer;

/* Kernels of layers are modules there. */
static bool is_module(const HfRow *row) {
    bool is_in_block = row->holder == HF_ATTENTION || row->holder == HF_GLU;
    return is_in_block && !row->whole && !(row->wants & HF_GATED) &&
           mx_text_has_suffix(row->ours, "/kernel");
}

/* "q_proj", of its weight. */
static const char *module_name(MxArena *arena, const HfRow *row) {
    return mx_arena_strndup(arena, row->theirs, strlen(row->theirs) - strlen(".weight"));
}

/* Which of the layers that share a name has a block. */
static int turn_of(const MxFamily *family, const char *block, size_t n, int a_name) {
    for (int turn = 0; turn < a_name; turn++)
        for (int b = 0; b < MX_LAYER_BLOCKS; b++) {
            const char *name = family->specs[family->turns[turn]].block[b].name;
            if (strlen(name) == n && !strncmp(name, block, n)) return turn;
        }
    return -1;
}

/* The number of a layer as Hugging Face counts them, by MaxText's and the name of a block. */
static int layer_of(int number, const char *block, size_t n) {
    int n_families;
    const MxFamily *const *families = mx_families(&n_families);
    for (int f = 0; f < n_families; f++) {
        int a_name = mx_family_a_name(families[f]);
        int turn = a_name > 1 ? turn_of(families[f], block, n, a_name) : -1;
        if (turn >= 0) return number * a_name + turn;
    }
    return number;
}

/* The part of a layer's leaf behind the names of layer and block; NULL = it is in no block. */
static const char *name_in_block(const char *path, int *layer) {
    static const char layers[] = "model/decoder/layers_";
    if (!mx_text_has_prefix(path, layers)) return NULL;
    const char *block = strchr(path + strlen(layers), '/');
    const char *name = block ? strchr(block + 1, '/') : NULL;
    if (!name) return NULL;
    int number = (int)strtol(path + strlen(layers), NULL, 10);
    *layer = layer_of(number, block + 1, (size_t)(name - block - 1));
    return name + 1;
}

static bool find_peer(MxArena *arena, const MxLeaf *leaf, Peer *out) {
    static const MxHfNames usual; /* those that have adapters call their blocks so */
    int layer;
    const char *name = name_in_block(leaf->path, &layer);
    if (!name || leaf->shape.rank != 2) return false;
    for (int i = 0; i < hf_n_rows; i++) {
        if (!is_module(&hf_rows[i]) || !mx_text_has_prefix(name, hf_rows[i].ours)) continue;
        const char *rest = name + strlen(hf_rows[i].ours);
        bool is_b = !strcmp(rest, "_lora_b");
        if (!is_b && strcmp(rest, "_lora_a")) continue;
        *out = (Peer){.row = i, .is_b = is_b};
        out->name = mx_arena_printf(arena, "base_model.model.model.layers.%d.%s.%s.lora_%c.weight",
                                    layer, hf_block_name(arena, &usual, &hf_rows[i]),
                                    module_name(arena, &hf_rows[i]), is_b ? 'B' : 'A');
        out->shape = MX_SHAPE(leaf->shape.dim[1], leaf->shape.dim[0]);
        return true;
    }
    return false;
}

/* Where column `i` of our B is in theirs. */
static int64_t their_column(const Peer *peer, const MxHeadForm *heads, int64_t i) {
    if (!peer->is_b || !heads->interleaves || hf_rows[peer->row].role == HF_PLAIN) return i;
    int64_t in_head = i % heads->width;
    return i - in_head + hf_place_in_head(heads->width, in_head);
}

static float factor(const Peer *peer, const MxHeadForm *heads) {
    return peer->is_b ? hf_factor(heads, hf_rows[peer->row].role) : 1;
}

/* ---- loading */

static MxWhere in_dir(MxArena *arena, const char *dir, const char *name) {
    return (MxWhere){.file = mx_path_join(arena, dir, name)};
}

bool mx_peft_is_dir(const char *dir) {
    MxArena arena = {.name = "peft"};
    bool is = mx_file_exists(mx_path_join(&arena, dir, config_name));
    mx_arena_release(&arena);
    return is;
}

static bool load_leaf(MxArena *arena, const MxTensors *file, const MxHeadForm *heads,
                      const Peer *peer, const MxLeaf *leaf, MxError *err) {
    const MxTensor *tensor = mx_tensors_find(file, peer->name);
    int64_t rows = leaf->shape.dim[0], columns = leaf->shape.dim[1];
    float *theirs = mx_new_n(arena, float, rows *columns);
    void *ours = mx_arena_alloc(arena, mx_leaf_bytes(leaf) + 1);
    if (!mx_tensors_read(file, tensor, theirs, err)) return false;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < columns; k++)
            hf_put(ours, leaf->dtype, i * columns + k,
                   factor(peer, heads) * theirs[their_column(peer, heads, k) * rows + i]);
    mx_leaf_write(leaf, ours);
    return true;
}

static bool check_tensor(MxArena *arena, const MxTensors *file, MxWhere where, const Peer *peer,
                         MxError *err) {
    const MxTensor *tensor = mx_tensors_find(file, peer->name);
    if (!tensor)
        return mx_fail(err, MX_EXIT_BAD_INPUT, where, "\"%s\" is missing; the model wants %s",
                       peer->name, mx_shape_text(arena, peer->shape));
    if (mx_shape_equal(tensor->shape, peer->shape)) return true;
    return mx_fail(err, MX_EXIT_BAD_INPUT, where, "\"%s\" has shape %s; the model wants %s",
                   peer->name, mx_shape_text(arena, tensor->shape),
                   mx_shape_text(arena, peer->shape));
}

static bool name_all(MxArena *arena, const MxTree *state, Peer *peers, MxError *err) {
    bool ok = true;
    for (int i = 0; i < state->n; i++)
        if (state->leaves[i].kind == MX_KIND_LORA_PARAM &&
            !find_peer(arena, &state->leaves[i], &peers[i]))
            ok = mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                         state->leaves[i].shape.rank == 3
                             ? "\"%s\": adapters of experts are not available yet in peft's files"
                             : "peft has no name for \"%s\"",
                         state->leaves[i].path);
    return ok;
}

static bool load(MxArena *arena, const char *dir, const MxHeadForm *heads, MxTree *state,
                 MxError *err) {
    MxWhere where = in_dir(arena, dir, tensors_name);
    MxTensors *file;
    MxMap wanted;
    Peer *peers = mx_new_n(arena, Peer, state->n + 1);
    mx_map_init(&wanted, arena);
    if (!mx_tensors_open(arena, where.file, &file, err) || !name_all(arena, state, peers, err))
        return false;
    bool ok = true;
    for (int i = 0; i < state->n; i++) {
        if (state->leaves[i].kind != MX_KIND_LORA_PARAM) continue;
        ok &= check_tensor(arena, file, where, &peers[i], err);
        mx_map_set(&wanted, peers[i].name, i);
    }
    for (int i = 0; i < mx_tensors_count(file); i++) {
        const char *name = mx_tensors_at(file, i)->name;
        if (mx_map_get(&wanted, name, -1) < 0)
            ok = mx_fail(err, MX_EXIT_BAD_INPUT, where,
                         "\"%s\" belongs to no module that is adapted here", name);
    }
    for (int i = 0; ok && i < state->n; i++)
        if (state->leaves[i].kind == MX_KIND_LORA_PARAM)
            ok = load_leaf(arena, file, heads, &peers[i], &state->leaves[i], err);
    return ok;
}

bool mx_peft_load(const char *dir, const MxHeadForm *heads, double scale, MxTree *state,
                  MxError *err) {
    MxArena arena = {.name = "peft"};
    bool ok = peft_read_config(&arena, dir, scale, err) && load(&arena, dir, heads, state, err);
    mx_arena_release(&arena);
    return ok;
}

/* ---- saving */

static const float *their_array(MxArena *arena, const MxHeadForm *heads, const Peer *peer,
                                const MxLeaf *leaf) {
    int64_t rows = leaf->shape.dim[0], columns = leaf->shape.dim[1];
    float *theirs = mx_new_n(arena, float, rows *columns);
    const float *ours = mx_leaf_values(arena, leaf);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < columns; k++)
            theirs[their_column(peer, heads, k) * rows + i] =
                ours[i * columns + k] / factor(peer, heads);
    return theirs;
}

/* The members that MaxText writes; peft takes its defaults for the rest. */
static const char *config_text(MxArena *arena, double scale, int64_t rank, const char *base,
                               const bool *has_module) {
    MxJson *config = mx_json_object(arena);
    mx_json_set_string(config, "base_model_name_or_path", base);
    mx_json_set_string(config, "peft_type", "LORA");
    mx_json_set_string(config, "task_type", "CAUSAL_LM");
    mx_json_set_int(config, "r", rank);
    mx_json_set_number(config, "lora_alpha", scale * (double)rank);
    MxJson *targets = mx_json_put_array(config, "target_modules");
    for (int i = 0; i < hf_n_rows; i++)
        if (has_module[i]) mx_json_push_string(targets, module_name(arena, &hf_rows[i]));
    mx_json_set_number(config, "lora_dropout", 0);
    mx_json_set_string(config, "bias", "none");
    mx_json_set_bool(config, "inference_mode", true);
    return mx_json_dump(arena, config, true);
}

static bool save(MxArena *arena, const char *dir, const MxHeadForm *heads, double scale,
                 const char *base, const MxTree *state, MxError *err) {
    MxTensorData *tensors = mx_new_n(arena, MxTensorData, state->n + 1);
    Peer *peers = mx_new_n(arena, Peer, state->n + 1);
    bool *has_module = mx_new_n(arena, bool, hf_n_rows);
    int n = 0;
    int64_t rank = 0;
    if (!name_all(arena, state, peers, err)) return false;
    for (int i = 0; i < state->n; i++) {
        const MxLeaf *leaf = &state->leaves[i];
        if (leaf->kind != MX_KIND_LORA_PARAM) continue;
        has_module[peers[i].row] = true;
        rank = leaf->shape.dim[peers[i].is_b ? 0 : 1];
        tensors[n++] = (MxTensorData){peers[i].name, peers[i].shape,
                                      their_array(arena, heads, &peers[i], leaf)};
    }
    const char *config = config_text(arena, scale, rank, base, has_module);
    return mx_tensors_write(mx_path_join(arena, dir, tensors_name), tensors, n, err) &&
           mx_file_write(mx_path_join(arena, dir, config_name), config, strlen(config), err);
}

/* ---- out of a checkpoint */

/* All adapters in memory. */
static bool read_adapters(MxArena *arena, const MxCkptRef *from, MxTree *out, MxError *err) {
    CkptFile file;
    CkptLora lora;
    mx_tree_init(out, arena);
    if (!ckpt_open(arena, from, &file, err) || !ckpt_lora_find(arena, &file, &lora, err))
        return false;
    for (int i = 0; i < 2 * lora.n; i++) {
        int at = i % 2 ? lora.adapters[i / 2].b : lora.adapters[i / 2].a;
        MxLeaf leaf = lora.leaves.leaves[at];
        leaf.kind = MX_KIND_LORA_PARAM;
        leaf.dtype = MX_F32;
        leaf.data = mx_new_n(arena, float, mx_shape_count(leaf.shape));
        if (!ckpt_read_piece(&file, &lora.pieces[at], ckpt_box(leaf.shape, -1, 0), MX_F32,
                             leaf.data, err))
            return false;
        mx_tree_add(out, leaf);
    }
    return true;
}

static int64_t last_dim(const MxLeaf *leaf) {
    return leaf->shape.dim[leaf->shape.rank - 1];
}

/* The rank of all of them. */
static bool find_rank(const MxCkptRef *from, const MxTree *adapters, int64_t *out, MxError *err) {
    *out = last_dim(&adapters->leaves[0]);
    bool ok = true;
    for (int i = 0; i < adapters->n; i += 2) /* A, B, A, B … */
        if (last_dim(&adapters->leaves[i]) != *out)
            ok = mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = from->ref},
                         "\"%s\" has rank %lld, \"%s\" %lld; peft's config tells one",
                         adapters->leaves[i].path, (long long)last_dim(&adapters->leaves[i]),
                         adapters->leaves[0].path, (long long)*out);
    return ok;
}

/* Every tensor holds what was to be written. */
static bool verify(MxArena *arena, const char *dir, const MxHeadForm *heads, const MxTree *adapters,
                   MxError *err) {
    MxTensors *file;
    MxWhere where = in_dir(arena, dir, tensors_name);
    Peer peer;
    if (!mx_tensors_open(arena, where.file, &file, err)) return false;
    bool ok = true;
    for (int i = 0; i < adapters->n; i++) {
        const MxLeaf *leaf = &adapters->leaves[i];
        if (!find_peer(arena, leaf, &peer)) continue;
        int64_t n = mx_shape_count(leaf->shape);
        float *found = mx_new_n(arena, float, n);
        if (!check_tensor(arena, file, where, &peer, err) ||
            !mx_tensors_read(file, mx_tensors_find(file, peer.name), found, err))
            ok = false;
        else if (memcmp(found, their_array(arena, heads, &peer, leaf), (size_t)n * sizeof *found))
            ok = mx_fail(err, MX_EXIT_IO, where, "\"%s\" does not read back as it was written",
                         peer.name);
    }
    return ok;
}

static void tell_names(MxArena *arena, const MxTree *adapters, const Peer *peers, MxText *notes) {
    for (int i = 0; i < adapters->n; i++)
        mx_text_add(notes, "%s %s -> %s %s\n", adapters->leaves[i].path,
                    mx_shape_text(arena, adapters->leaves[i].shape), peers[i].name,
                    mx_shape_text(arena, peers[i].shape));
}

bool mx_peft_convert(const MxCkptRef *from, const MxPeftConvert *how, const char *dir,
                     MxText *notes, MxError *err) {
    MxArena arena = {.name = "peft"};
    MxTree adapters;
    int64_t rank = 0;
    bool ok = read_adapters(&arena, from, &adapters, err);
    if (ok && how->alpha <= 0)
        ok = mx_fail(
            err, MX_EXIT_BAD_INPUT, (MxWhere){.file = from->ref},
            "the lora_alpha of its adapters is not known; --lora-alpha tells it, or --config");
    if (adapters.n && !how->heads.width)
        ok = mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = from->ref},
                     "how its model keeps heads is not known; --config names the config");
    Peer *peers = mx_new_n(&arena, Peer, adapters.n + 1);
    bool has_rank = adapters.n && find_rank(from, &adapters, &rank, err);
    ok = name_all(&arena, &adapters, peers, err) && has_rank && ok;
    if (ok && !dir) tell_names(&arena, &adapters, peers, notes);
    if (ok && dir)
        ok = save(&arena, dir, &how->heads, how->alpha / (double)rank, how->base, &adapters, err) &&
             (!how->verifies || verify(&arena, dir, &how->heads, &adapters, err));
    if (ok)
        mx_text_add(notes, "result: %d adapters, r %lld, lora_alpha %.9g\n", adapters.n / 2,
                    (long long)rank, how->alpha);
    mx_arena_release(&arena);
    return ok;
}
