/* audio.c — Qwen 3-Omni's encoder of sounds. Chunks of a spectrogram pass through three
 * convolutions of 3 x 3, each over every second frame and bin; what is left of a frame is projected
 * to the tower's width and gets its position in the chunk, as waves; the tokens of some chunks see
 * each other in the tower's layers; two layers make the decoder's width. Source: transformers 5.23,
 * models/qwen3_omni_moe (Qwen3OmniMoeAudioEncoder); MaxText models/qwen3.py (Qwen3OmniAudioEncoder,
 * Qwen3OmniAudioProjector) @e591f30c, from which docs/DIFFERENCES.md says where this differs.
 *
 * Shape letters: B batch, C chunks of a row, T frames, M bins, N channels, S tokens of a row, D the
 * tower's width, E the decoder's. */
#include <mx/model.h>

#include "vision.h"

#include <math.h>

enum { ALONG = 3 }; /* taps of a convolution along frames, and along bins */

struct Ear {
    Dense conv[MX_AUDIO_CONVS];
    int out; /* of the convolutions */
    MxRopeFreqs wave;
    Tower tower;
    Norm norm;
    Dense proj[2];
};

MxHearing mx_model_hearing(const MxConfig *c) {
    if (!c->use_multimodal || !c->use_audio) return (MxHearing){0};
    const int64_t chunk = 2 * c->n_window_for_audio, most = c->max_sample_len_for_audio;
    return (MxHearing){.encoder = mx_encoder_find(c->vision_encoder_block)->audio,
                       .chunks = (most + chunk - 1) / chunk,
                       .most = most,
                       .frames = chunk,
                       .bins = c->num_mel_bins_for_audio,
                       .span = c->n_window_infer_for_audio / chunk};
}

/* ---- parameters */

static void add_layer(const Place *tower, const MxConfig *c, const char *name, TowerLayer *l) {
    const int64_t D = c->d_model_for_audio, wide = c->encoder_ffn_dim_for_audio;
    const VisionKernel up = {"AudioMLP/wi", MX_SHAPE(D, wide), 1, AXES("embed", "mlp"),
                             MX_INIT_TRUNCATED_NORMAL};
    const VisionKernel down = {"AudioMLP/wo", MX_SHAPE(wide, D), 1, AXES("mlp", "embed"),
                               MX_INIT_TRUNCATED_NORMAL};
    Place p = *tower;
    p.dir = l->scope = mx_path_join(p.arena, p.dir, name);
    l->norm[0] = vision_norm(&p, "input_layer_norm", D);
    Place attention = p;
    attention.block = "self_attention_audio";
    vision_heads(&attention, D, c->encoder_attention_heads_for_audio, true, l->qkv, &l->out);
    l->norm[1] = vision_norm(&p, "post_attention_layer_norm", D);
    l->up = vision_kernel(&p, &up, true);
    l->down = vision_kernel(&p, &down, true);
}

static void add_tower(const Place *p, const MxConfig *c, const MxAudioEncoder *encoder, Ear *ear) {
    const int64_t D = c->d_model_for_audio, N = c->downsample_hidden_size_for_audio;
    const int64_t bins = mx_audio_side(c->num_mel_bins_for_audio, MX_AUDIO_CONVS);
    for (int i = 0; i < MX_AUDIO_CONVS; i++)
        ear->conv[i] = vision_dense(p, mx_arena_printf(p->arena, "conv2d%d", i + 1),
                                    MX_SHAPE(ALONG, ALONG, i ? N : 1, N), 3, true);
    ear->out = vision_dense(p, "conv_out", MX_SHAPE(N * bins, D), 1, false).kernel;
    ear->tower =
        (Tower){mx_new_n(p->arena, TowerLayer, c->encoder_layers_for_audio), MX_GELU_EXACT};
    for (int i = 0; i < c->encoder_layers_for_audio; i++)
        add_layer(p, c, mx_arena_printf(p->arena, "%s%d", encoder->layer, i),
                  &ear->tower.layers[i]);
    ear->norm = vision_norm(p, "layernorm_post", D);
}

/* Source: MaxText layers/embeddings.py (PositionalEmbedding) @e591f30c. */
static MxRopeFreqs wave_of(MxArena *arena, const MxConfig *c) {
    MxRopeFreqs wave = {.n = (int)(c->d_model_for_audio / 2), .amplitude = 1};
    wave.frequency = mx_new_n(arena, double, wave.n);
    for (int i = 0; i < wave.n; i++)
        wave.frequency[i] = pow(c->max_timescale_for_audio, -(double)i / fmax(wave.n - 1, 1));
    return wave;
}

void model_add_audio(MxArena *arena, MxModel *model) {
    const MxConfig *c = model->config;
    const MxAudioEncoder *encoder = mx_model_hearing(c).encoder;
    const int64_t D = c->d_model_for_audio;
    Ear *ear = mx_new(arena, Ear);
    Place p = vision_place(arena, model);
    Place tower = p;
    tower.dir = mx_path_join(arena, "audio_encoder", encoder->tower);
    p.dir = mx_path_join(arena, "audio_encoder", encoder->projector);
    if (c->freeze_audio_encoder_params && !c->enable_lora) tower.kind = MX_KIND_FROZEN;
    add_tower(&tower, c, encoder, ear);
    ear->wave = wave_of(arena, c);
    ear->proj[0] = vision_dense(&p, "proj1", MX_SHAPE(D, D), 1, true);
    ear->proj[1] = vision_dense(&p, "proj2", MX_SHAPE(D, c->output_dim_for_audio), 1, true);
    model->ear = ear;
}

/* ---- forward pass */

static MxValue zeros_of(const Pass *p, MxShape shape) {
    MxInitAttr nothing = {.type = {MX_F32, shape}, .fill = MX_FILL_CONSTANT};
    return mx_cast(p->t, mx_init(p->t, nothing), p->model->dtype);
}

/* What stands before, at and behind every second of n: x [B, R, n, W] to three of [B, R n', W], 0
 * outside of the n. */
static void every_second(const Pass *p, MxValue x, MxShape shape, MxValue out[ALONG]) {
    MxTrace *t = p->t;
    const int64_t B = shape.dim[0], R = shape.dim[1], n = shape.dim[2], W = shape.dim[3];
    const int64_t half = mx_audio_side(n, 1);
    const MxShape rows = MX_SHAPE(B, R * half, W);
    MxValue zeros = zeros_of(p, MX_SHAPE(B, R, W));
    x = mx_reshape(t, x, MX_SHAPE(B, R, n * W));
    if (n % 2) x = mx_concat(t, x, zeros);
    out[1] = mx_split(t, mx_reshape(t, x, MX_SHAPE(B, R * half, 2 * W)), W);
    out[2] = out[1] + 1;
    MxValue before = mx_concat(t, zeros, mx_reshape(t, out[2], MX_SHAPE(B, R, half * W)));
    out[0] = mx_reshape(t, mx_split(t, before, half * W), rows);
}

/* The matrices of a kernel [n, K, N], each as [K, N]. */
static void take_matrices(const Pass *p, int leaf, int64_t n, MxValue *out) {
    MxTrace *t = p->t;
    const MxShape shape = p->model->params.leaves[leaf].shape;
    const int64_t N = shape.dim[shape.rank - 1], K = mx_shape_count(shape) / n / N;
    MxValue flat = mx_reshape(t, model_weight(p, leaf), MX_SHAPE(1, n * K * N));
    model_take_apart(t, flat, (int)n, K * N, out);
    for (int64_t i = 0; i < n; i++) out[i] = mx_reshape(t, out[i], MX_SHAPE(K, N));
}

static MxValue add_product(MxTrace *t, MxValue sum, MxValue x, MxValue matrix) {
    MxValue product = mx_dot(t, x, matrix, MX_DOT_NN, 1);
    return sum == MX_NONE ? product : mx_add(t, sum, product);
}

/* x [B, C T M, N] as [B, C T' M', N]; shape is [C, T, M, N]. */
static MxValue convolve(const Pass *p, Dense conv, MxShape shape, MxValue x) {
    MxTrace *t = p->t;
    const int64_t B = mx_trace_type(t, x).shape.dim[0], C = shape.dim[0], T = shape.dim[1];
    const int64_t M = shape.dim[2], N = shape.dim[3];
    const MxShape in_frame = MX_SHAPE(B, C * mx_audio_side(T, 1), M, N);
    MxValue kernel[ALONG * ALONG], frame[ALONG], bin[ALONG], sum = MX_NONE;
    take_matrices(p, conv.kernel, ALONG * ALONG, kernel);
    every_second(p, x, MX_SHAPE(B, C, T, M * N), frame);
    for (int i = 0; i < ALONG; i++) {
        every_second(p, frame[i], in_frame, bin);
        for (int k = 0; k < ALONG; k++) sum = add_product(t, sum, bin[k], kernel[k * ALONG + i]);
    }
    sum = mx_add(t, sum, model_weight(p, conv.bias));
    return mx_activate(t, sum, MX_GELU_EXACT);
}

/* The first convolution's products are of patches, which its input has already. */
static MxValue convolve_patches(const Pass *p, Dense conv, MxValue patches, const MxHearing *h) {
    MxTrace *t = p->t;
    const int64_t B = mx_trace_type(t, patches).shape.dim[0];
    const int64_t N = p->model->config->downsample_hidden_size_for_audio;
    MxValue x = mx_reshape(t, mx_cast(t, patches, p->model->dtype),
                           MX_SHAPE(B, mx_audio_patches(h), MX_AUDIO_TAPS));
    MxValue kernel = mx_reshape(t, model_weight(p, conv.kernel), MX_SHAPE(MX_AUDIO_TAPS, N));
    x = mx_add(t, mx_dot(t, x, kernel, MX_DOT_NN, 1), model_weight(p, conv.bias));
    return mx_activate(t, x, MX_GELU_EXACT);
}

/* x [B, S M, N] as [B, S, D]: the kernel's rows are of a channel, then of its bins. */
static MxValue project_frames(const Pass *p, int leaf, int64_t M, MxValue x) {
    MxTrace *t = p->t;
    MxArena arena = {.name = "bins"};
    const MxShape shape = mx_trace_type(t, x).shape, all = p->model->params.leaves[leaf].shape;
    const int64_t N = shape.dim[2], D = all.dim[1];
    MxValue *bin = mx_new_n(&arena, MxValue, M), *kernel = mx_new_n(&arena, MxValue, M);
    MxValue sum = MX_NONE;
    x = mx_reshape(t, x, MX_SHAPE(shape.dim[0], shape.dim[1] / M, M * N));
    model_take_apart(t, x, (int)M, N, bin);
    model_take_apart(t, mx_reshape(t, model_weight(p, leaf), MX_SHAPE(N, M * D)), (int)M, D,
                     kernel);
    for (int64_t m = 0; m < M; m++) sum = add_product(t, sum, bin[m], kernel[m]);
    mx_arena_release(&arena);
    return sum;
}

/* Chunks as tokens of the tower's width, [B, S, D]. */
static MxValue embed(const Pass *p, const MxModelSounds *sounds, const MxHearing *h) {
    MxTrace *t = p->t;
    const Ear *ear = p->model->ear;
    MxValue x = convolve_patches(p, ear->conv[0], sounds->patches, h);
    int64_t T = mx_audio_side(h->frames, 1), M = mx_audio_side(h->bins, 1);
    const int64_t B = mx_trace_type(t, x).shape.dim[0], N = mx_trace_type(t, x).shape.dim[2];
    for (int i = 1; i < MX_AUDIO_CONVS; i++) {
        x = mx_reshape(t, x, MX_SHAPE(B, h->chunks * T, M * N));
        x = mx_merge(t, x, zeros_of(p, MX_SHAPE(B, 1, M * N)), sounds->ended[i - 1]);
        x = convolve(p, ear->conv[i], MX_SHAPE(h->chunks, T, M, N), x);
        T = mx_audio_side(T, 1);
        M = mx_audio_side(M, 1);
    }
    x = project_frames(p, ear->out, M, x);
    MxValue cosines = mx_split(t, mx_rope_table(t, sounds->place, ear->wave), 1);
    MxShape half = mx_trace_type(t, cosines).shape;
    half.rank--;
    MxValue waves = mx_concat(t, mx_reshape(t, cosines + 1, half), mx_reshape(t, cosines, half));
    return vision_constrain(&(Sight){.pass = p}, mx_add(t, x, mx_cast(t, waves, p->model->dtype)));
}

/* The room of a row is what it has patches for. */
static MxHearing hearing_of(const Pass *p, const MxModelSounds *sounds) {
    MxHearing h = mx_model_hearing(p->model->config);
    const MxShape shape = mx_trace_type(p->t, sounds->patches).shape;
    h.chunks = 1;
    h.chunks = shape.dim[1] / (mx_audio_patches(&h) * MX_AUDIO_TAPS);
    return h;
}

MxValue model_hear(const Pass *p, const MxModelSounds *sounds) {
    static const double epsilon = 1e-5; /* whatever keys say, in MaxText and in transformers */
    const MxConfig *c = p->model->config;
    const MxHearing h = hearing_of(p, sounds);
    const Ear *ear = p->model->ear;
    const char *scope = p->t->scope;
    Sight s = {.pass = p,
               .views = sounds->window,
               .n_layers = (int)c->encoder_layers_for_audio,
               .first_region =
                   p->model->n_layers + p->model->n_ahead + 1 + (int)c->num_hidden_layers_for_vit,
               .epsilon = epsilon};
    p->t->scope = "audio_encoder";
    MxValue x = vision_layers(&s, &ear->tower, embed(p, sounds, &h), NULL);
    x = model_norm(p, x, ear->norm, epsilon);
    x = mx_activate(p->t, model_project(p, x, ear->proj[0].kernel, ear->proj[0].bias),
                    MX_GELU_EXACT);
    x = model_project(p, x, ear->proj[1].kernel, ear->proj[1].bias);
    MxShape more = mx_trace_type(p->t, x).shape;
    more.dim[2] = mx_model_vision(c).deep * c->emb_dim;
    if (more.dim[2]) x = mx_concat(p->t, x, zeros_of(p, more));
    p->t->scope = scope;
    return x;
}

/* ---- cost */

/* Products of all rooms, as if every chunk were full. */
BlockFlops model_audio_flops(const MxConfig *c, double rows, double *projector) {
    const MxHearing h = mx_model_hearing(c);
    const double D = (double)c->d_model_for_audio, wide = (double)c->encoder_ffn_dim_for_audio;
    const double N = (double)c->downsample_hidden_size_for_audio;
    const double S = rows * (double)mx_audio_places(&h),
                 layers = (double)c->encoder_layers_for_audio;
    double convs = 0;
    for (int i = 1; i <= MX_AUDIO_CONVS; i++)
        convs += 2 * MX_AUDIO_TAPS * (i > 1 ? N : 1) * N * rows * (double)h.chunks *
                 (double)(mx_audio_side(h.frames, i) * mx_audio_side(h.bins, i));
    convs += 2 * S * N * (double)mx_audio_side(h.bins, MX_AUDIO_CONVS) * D;
    *projector = 2 * S * D * (D + (double)c->output_dim_for_audio);
    return (BlockFlops){.weights = convs + layers * 2 * S * (4 * D * D + 2 * D * wide) + *projector,
                        .attention = 4 * S * (double)(h.span * mx_audio_tokens(&h)) * D * layers};
}
