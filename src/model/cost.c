/* cost.c — the cost of a model, added up from the rows of its blocks. */
#include <mx/model.h>

#include "streams.h"

#include <math.h>

/* What the blocks of a layer's kind cost together. */
static BlockFlops layer_flops(const MxConfig *c, const MxLayerSpec *spec, double rows,
                              double length, double n_layers) {
    BlockFlops sum = {0};
    for (int i = 0; i < model_n_blocks(spec); i++) {
        const MxBlockSpec *row = &spec->block[i];
        BlockFlops one = model_block(row->kind)->flops(c, spec, row, rows, length);
        double back = row->back ? 2 * rows * length * (double)model_width(c, row->gives) : 0;
        sum.weights += (one.weights + back * (double)c->emb_dim) * n_layers;
        sum.attention += one.attention * n_layers;
    }
    return sum;
}

/* All layers, and the modules that look ahead. */
static void forward_flops(const MxConfig *c, double rows, double length, BlockFlops *layers,
                          BlockFlops *ahead) {
    MxLayers all = mx_model_layers(c);
    const MxLayerSpec *specs = all.family->specs;
    *layers = (BlockFlops){0};
    for (int s = 0; s < all.family->n_specs; s++) {
        int n_alike = 0;
        for (int i = 0; i < all.n; i++) n_alike += mx_layer_spec(&all, i) == &specs[s];
        BlockFlops some = layer_flops(c, &specs[s], rows, length, n_alike);
        layers->weights += some.weights;
        layers->attention += some.attention;
    }
    layers->weights += model_input_flops(c, rows * length, all.n);
    BlockFlops recall = model_recall_flops(c, rows * length);
    layers->weights += recall.weights * c->n_recall;
    layers->attention += recall.attention * c->n_recall;
    *ahead = (BlockFlops){0};
    for (int i = 0; i < mx_family_a_name(all.family); i++) {
        BlockFlops some =
            layer_flops(c, mx_layer_ahead(all, i), rows, length, (double)c->mtp_num_layers);
        ahead->weights += some.weights;
        ahead->attention += some.attention;
    }
}

/* Of the head, for a token. */
static double head_width(const MxConfig *c) {
    return c->score_head ? 1 : (double)c->vocab_size;
}

double mx_model_size(const MxConfig *c) {
    BlockFlops layers, ahead;
    forward_flops(c, 1, 1, &layers, &ahead); /* of one token: two for each weight */
    return (layers.weights + ahead.weights) / 2 +
           (double)c->emb_dim * ((double)c->vocab_size + head_width(c));
}

double mx_model_width(const MxConfig *c) {
    const MxFamily *family = mx_family_find(c->decoder_block);
    double widest = (double)(c->emb_dim * model_n_streams(c));
    for (int s = 0; s < family->n_specs; s++)
        for (int i = 0; i < model_n_blocks(&family->specs[s]); i++) {
            const MxBlockSpec *row = &family->specs[s].block[i];
            double width = model_block(row->kind)->width(c, &family->specs[s], row);
            if (width > widest) widest = width;
        }
    return fmax(widest, model_recall_width(c));
}

enum { FORWARD_AND_BACKWARD = 3 };

/* Of an encoder that is left as it is, the forward pass and what trains the projector. */
static void add_encoder(BlockFlops encoder, double projector, bool freezes, MxTflops *tflops) {
    const double tera = 1e12, all = FORWARD_AND_BACKWARD;
    tflops->learnable +=
        (freezes ? encoder.weights + (all - 1) * projector : all * encoder.weights) / tera;
    tflops->attention += (freezes ? 1 : all) * encoder.attention / tera;
}

static void add_encoders(const MxConfig *c, double rows, MxTflops *tflops) {
    double projector;
    BlockFlops vision = model_vision_flops(c, rows, &projector);
    add_encoder(vision, projector, c->freeze_vision_encoder_params, tflops);
    if (!mx_model_hearing(c).encoder) return;
    BlockFlops audio = model_audio_flops(c, rows, &projector);
    add_encoder(audio, projector, c->freeze_audio_encoder_params, tflops);
}

/* Sums and products are taken in MaxText's order, so that the doubles are the same to the last bit.
 */
static MxTflops count_tflops(const MxConfig *c) {
    const double tera = 1e12;
    double rows = c->per_device_batch_size, length = (double)c->max_target_length;
    double unembedding = 2 * rows * length * (double)c->emb_dim * head_width(c);
    BlockFlops layers, ahead;
    forward_flops(c, rows, length, &layers, &ahead);
    double weights = layers.weights + unembedding;
    double micro_batches = (double)c->gradient_accumulation_steps;
    MxTflops tflops = {.learnable = weights * FORWARD_AND_BACKWARD / tera,
                       .attention = layers.attention * FORWARD_AND_BACKWARD / tera};
    tflops.learnable += ahead.weights * FORWARD_AND_BACKWARD / tera;
    tflops.attention += ahead.attention * FORWARD_AND_BACKWARD / tera;
    if (c->use_multimodal) add_encoders(c, rows, &tflops);
    tflops.learnable *= micro_batches;
    tflops.attention *= micro_batches;
    if (c->use_dpo && !c->score_head) {
        tflops.reference = tflops.learnable / FORWARD_AND_BACKWARD;
        tflops.attention += tflops.attention / FORWARD_AND_BACKWARD;
    }
    tflops.total = tflops.learnable + tflops.attention + tflops.reference;
    return tflops;
}

/* Of a teacher the forward pass. Source: MaxText distillation_utils.py,
 * calculate_distillation_tflops_per_device. */
MxTflops mx_model_tflops(const MxModel *model) {
    const MxConfig *c = model->config;
    MxTflops tflops = count_tflops(c);
    if (!c->teacher) return tflops;
    MxTflops teacher = count_tflops(c->teacher);
    tflops.reference += teacher.learnable / FORWARD_AND_BACKWARD;
    tflops.attention += teacher.attention / FORWARD_AND_BACKWARD;
    tflops.total += teacher.total / FORWARD_AND_BACKWARD;
    return tflops;
}

const char *mx_tflops_text(MxArena *arena, MxTflops tflops) {
    char total[MX_FIGURE];
    MxText text;
    mx_text_init(&text, arena);
    mx_text_add(&text,
                "Per train step:\n Total TFLOPs: %s \n split as %.2f%% learnable weight flops and "
                "%.2f%% attention flops",
                mx_figure(total, tflops.total, 2), 100 * tflops.learnable / tflops.total,
                100 * tflops.attention / tflops.total);
    if (tflops.reference > 0)
        mx_text_add(&text, ", %.2f%% frozen reference weight flops",
                    100 * tflops.reference / tflops.total);
    return text.data;
}
