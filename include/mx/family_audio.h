/* family_audio.h — encoders of sounds, as data: what others call their parts, and how a sound
 * becomes what they read. A sound is frames of a spectrogram; frames are cut into chunks; three
 * convolutions, each over 3 x 3 of frames and bins of frequency, every second of both, leave an
 * eighth of a chunk's frames, which are its tokens. What a tower computes is in the model room
 * (audio.c). Nothing here depends on a config. */
#ifndef MX_FAMILY_AUDIO_H
#define MX_FAMILY_AUDIO_H

#include <mx/base.h>

/* An encoder of sounds, which stands beside one of images (MxEncoder.audio). */
typedef struct MxAudioEncoder {
    /* Paths of MaxText's below "audio_encoder/": the tower, which can be frozen, and what makes the
     * decoder's width of its output; and below the tower a layer, before its number. */
    const char *tower, *projector, *layer;
    /* What the tokenizer calls what stands in a text for a sound, before the sound, for each of its
     * tokens, and behind it. */
    const char *mark, *begin, *token, *end;
    /* Of Hugging Face's folders: model_type of the audio_config; what stands before names of the
     * tower, and before the number of a layer. */
    const char *hf_type, *hf_tower, *hf_layers;
} MxAudioEncoder;

enum { MX_AUDIO_CONVS = 3, MX_AUDIO_TAPS = 9 /* of a convolution */ };

/* How a config's model hears sounds. */
typedef struct MxHearing {
    const MxAudioEncoder *encoder; /* NULL = the model hears none */
    int64_t chunks;                /* that a row of a batch has room for */
    int64_t most;                  /* frames of the sounds of a record */
    int64_t frames, bins;          /* of a chunk; of a frame */
    int64_t span;                  /* chunks of a sound whose tokens see each other */
} MxHearing;

/* mx_audio_side — what n frames, or bins, are behind the first convolutions. mx_audio_tokens — of a
 * chunk. mx_audio_chunks — of a sound of n frames; mx_audio_count — its tokens: whole
 * chunks have mx_audio_tokens, the last one as many as its frames leave. Source: transformers
 * 5.23, models/qwen3_omni_moe (_get_feat_extract_output_lengths, chunk_and_pad_features). */
static inline int64_t mx_audio_side(int64_t n, int convs) {
    for (int i = 0; i < convs; i++) n = (n + 1) / 2;
    return n;
}
static inline int64_t mx_audio_tokens(const MxHearing *h) {
    return mx_audio_side(h->frames, MX_AUDIO_CONVS);
}
static inline int64_t mx_audio_chunks(const MxHearing *h, int64_t n) {
    return (n + h->frames - 1) / h->frames;
}
static inline int64_t mx_audio_count(const MxHearing *h, int64_t n) {
    return n / h->frames * mx_audio_tokens(h) + mx_audio_side(n % h->frames, MX_AUDIO_CONVS);
}

/* Values of a row of a batch: its frames f32 [chunks, frames, bins]; of the tower's first product
 * [chunks, patches, MX_AUDIO_TAPS]; and places of tokens. */
static inline int64_t mx_audio_row(const MxHearing *h) {
    return h->encoder ? h->chunks * h->frames * h->bins : 0;
}
static inline int64_t mx_audio_patches(const MxHearing *h) {
    return h->chunks * mx_audio_side(h->frames, 1) * mx_audio_side(h->bins, 1);
}
static inline int64_t mx_audio_places(const MxHearing *h) {
    return h->encoder ? h->chunks * mx_audio_tokens(h) : 0;
}

/* What the tower is told of a row beside its patches. */
typedef struct MxAudioFacts {
    int32_t *window; /* [mx_audio_places] tokens of one number see each other; 0 = there is none */
    int32_t *place;  /* [mx_audio_places] of a token in its chunk */
    /* [chunks · frames behind so many convolutions] 1 where a sound that is shorter than a chunk
     * has ended, and the next convolution reads 0 */
    int32_t *ended[MX_AUDIO_CONVS - 1];
    /* [mx_audio_patches, MX_AUDIO_TAPS] what the first convolution reads around each second bin of
     * each second frame: frames -1, 0 and 1 of bin -1, then of bins 0 and 1; 0 outside of a chunk
     */
    float *patch;
} MxAudioFacts;

/* mx_audio_fill — for a row.
 *   left    [chunks] frames of a sound from this chunk on; 0 = the chunk is empty
 *   before  chunks of the first sound that came before these
 *   frames  [chunks, frames, bins], 0 behind a sound
 * A sound that is shorter than a chunk ends where it ends, as it does in transformers if it is read
 * alone; behind others the last chunk goes on with zeros. */
void mx_audio_fill(const MxHearing *hearing, const int32_t *left, int64_t before,
                   const float *frames, MxAudioFacts out);

#endif
