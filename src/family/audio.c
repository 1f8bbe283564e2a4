/* audio.c — how frames of sounds become what an encoder of sounds reads. */
#include <mx/family_audio.h>

/* Whether a chunk begins a sound: the one before it is empty, or ends one. */
static bool begins(const MxHearing *h, const int32_t *left, int64_t before, int64_t chunk) {
    return left[chunk] && (chunk ? left[chunk - 1] <= h->frames : !before);
}

static int64_t frames_of(const MxHearing *h, int32_t left) {
    return left < h->frames ? left : h->frames;
}

/* Tokens of `span` chunks of a sound see each other, from its first chunk on. */
static void fill_tokens(const MxHearing *h, const int32_t *left, int64_t before, MxAudioFacts out) {
    const int64_t tokens = mx_audio_tokens(h);
    int64_t within = before - 1;
    int32_t window = 0;
    for (int64_t c = 0; c < h->chunks; c++) {
        int64_t n = mx_audio_side(frames_of(h, left[c]), MX_AUDIO_CONVS);
        within = begins(h, left, before, c) ? 0 : within + 1;
        if (left[c] && within % h->span == 0) window++;
        for (int64_t t = 0; t < tokens; t++) {
            out.window[c * tokens + t] = t < n ? window : 0;
            out.place[c * tokens + t] = (int32_t)t;
        }
    }
}

static void fill_ended(const MxHearing *h, const int32_t *left, int64_t before, MxAudioFacts out) {
    for (int i = 0; i < MX_AUDIO_CONVS - 1; i++) {
        const int64_t side = mx_audio_side(h->frames, i + 1);
        for (int64_t c = 0; c < h->chunks; c++) {
            bool is_short = begins(h, left, before, c) && left[c] < h->frames;
            int64_t n = is_short ? mx_audio_side(left[c], i + 1) : side;
            for (int64_t t = 0; t < side; t++) out.ended[i][c * side + t] = t >= n;
        }
    }
}

/* Of one chunk. */
static float *cut_patches(const MxHearing *h, const float *frames, float *out) {
    for (int64_t t = 0; t < h->frames; t += 2)
        for (int64_t bin = 0; bin < h->bins; bin += 2)
            for (int64_t x = bin - 1; x <= bin + 1; x++)
                for (int64_t y = t - 1; y <= t + 1; y++) {
                    bool is_in = y >= 0 && y < h->frames && x >= 0 && x < h->bins;
                    *out++ = is_in ? frames[y * h->bins + x] : 0;
                }
    return out;
}

void mx_audio_fill(const MxHearing *h, const int32_t *left, int64_t before, const float *frames,
                   MxAudioFacts out) {
    fill_tokens(h, left, before, out);
    fill_ended(h, left, before, out);
    for (int64_t c = 0; c < h->chunks; c++)
        out.patch = cut_patches(h, frames + c * h->frames * h->bins, out.patch);
}
