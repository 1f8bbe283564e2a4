/* sounds.c — the sounds of records: their files, the tokens that stand for them, and their frames.
 * The prefetching thread reads the files when a batch is made; that each file is a sound is checked
 * when records are read. */
#include "images.h"

int64_t sounds_most(const MxHearing *h) {
    return (h->most + 1) * MX_SOUND_HOP - 1;
}

bool sounds_open(MxArena *arena, MxWhere where, Seer *seer, MxError *err) {
    const MxHearing *h = &seer->hearing;
    if (!h->encoder) return true;
    return seer_find_token(arena, seer, h->encoder->token, "sounds", where, &seer->sound_token,
                           err) &&
           mx_sounds_open(arena, sounds_most(h), &seer->sounds, err);
}

static const char *name_of(const MxJson *item) {
    static const char *const keys[] = {"audio", "path", "url"};
    const char *name = mx_json_string(item);
    for (int i = 0; i < MX_COUNT(keys) && !name; i++)
        name = mx_json_string(mx_json_get(item, keys[i]));
    return name && *name ? name : NULL;
}

bool sounds_add(MxArena *arena, const Seer *seer, const MxJson *item, MxWhere where, Pictures *out,
                MxError *err) {
    SoundFiles *sounds = &out->sounds;
    const char *path, *name = name_of(item);
    if (!seer->hearing.encoder)
        return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                       "found a sound, but no encoder of sounds is at work here (use_audio)");
    if (!name)
        return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                       "a sound is %s that names no file, wanted its name (\"audio\")",
                       mx_json_kind(item));
    if (!seer_path(arena, seer, name, "a sound", where, &path, err)) return false;
    if (sounds->n == sounds->cap) {
        sounds->cap = sounds->cap ? 2 * sounds->cap : 4;
        sounds->path = mx_arena_grow(arena, sounds->path, (size_t)sounds->n, (size_t)sounds->cap,
                                     sizeof *sounds->path);
    }
    sounds->path[sounds->n++] = path;
    return true;
}

bool sounds_look(MxArena *arena, const Seer *seer, Pictures *pictures, MxWhere where,
                 MxError *err) {
    const MxHearing *h = &seer->hearing;
    SoundFiles *sounds = &pictures->sounds;
    sounds->samples = mx_new_n(arena, int64_t, sounds->n + 1);
    sounds->frames = mx_new_n(arena, int64_t, sounds->n + 1);
    for (int i = 0; i < sounds->n; i++) {
        if (!mx_sound_look(seer->sounds, sounds->path[i], where, &sounds->samples[i], err))
            return false;
        sounds->frames[i] = sounds->samples[i] / MX_SOUND_HOP;
        if (sounds->frames[i] > h->most)
            return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                           "sound \"%.60s\" has %lld frames of 10 milliseconds, wanted at most "
                           "%lld, as max_sample_len_for_audio says",
                           sounds->path[i], (long long)sounds->frames[i], (long long)h->most);
    }
    int64_t chunks = sounds_chunks(seer, pictures);
    return chunks <= h->chunks ||
           mx_fail(err, MX_EXIT_BAD_INPUT, where,
                   "its sounds have %lld chunks of %lld frames, wanted at most %lld of them, as "
                   "max_sample_len_for_audio (%lld) says",
                   (long long)chunks, (long long)h->frames, (long long)h->chunks,
                   (long long)h->most);
}

/* That there is one is checked later. */
void sounds_add_tokens(const Seer *seer, const Pictures *pictures, int i, MxText *out) {
    const MxHearing *h = &seer->hearing;
    const SoundFiles *sounds = &pictures->sounds;
    int64_t n = i < sounds->n ? mx_audio_count(h, sounds->frames[i]) : 0;
    mx_text_add(out, "%s", h->encoder->begin);
    while (n-- > 0) mx_text_add(out, "%s", h->encoder->token);
    mx_text_add(out, "%s", h->encoder->end);
}

int64_t sounds_tokens(const Seer *seer, const Pictures *pictures) {
    int64_t n = 0;
    for (int i = 0; i < pictures->sounds.n; i++)
        n += mx_audio_count(&seer->hearing, pictures->sounds.frames[i]);
    return n;
}

int64_t sounds_chunks(const Seer *seer, const Pictures *pictures) {
    int64_t n = 0;
    for (int i = 0; i < pictures->sounds.n; i++)
        n += mx_audio_chunks(&seer->hearing, pictures->sounds.frames[i]);
    return n;
}

/* Each sound begins a chunk. */
void sounds_index(const Seer *seer, const Pictures *pictures, const int32_t *tokens, int64_t length,
                  int64_t rows, int32_t *index) {
    const MxHearing *h = &seer->hearing;
    const SoundFiles *sounds = &pictures->sounds;
    int64_t chunk = 0, k = 0;
    int i = 0;
    for (int64_t t = 0; t < length && i < sounds->n; t++) {
        if (tokens[t] != seer->sound_token) continue;
        index[t] = (int32_t)(rows + chunk * mx_audio_tokens(h) + ++k);
        if (k < mx_audio_count(h, sounds->frames[i])) continue;
        chunk += mx_audio_chunks(h, sounds->frames[i++]);
        k = 0;
    }
}

bool sounds_read(const Seer *seer, const Pictures *pictures, MxWhere where, float *samples,
                 const DataSeen *out, MxError *err) {
    const MxHearing *h = &seer->hearing;
    const SoundFiles *sounds = &pictures->sounds;
    int64_t chunk = 0;
    for (int i = 0; i < sounds->n; i++) {
        if (!mx_sound_read(seer->sounds, sounds->path[i], where, sounds->samples[i], samples, err))
            return false;
        mx_sound_frames(samples, sounds->samples[i], h->bins,
                        out->frames + chunk * h->frames * h->bins);
        for (int64_t left = sounds->frames[i]; left > 0; left -= h->frames)
            out->left[chunk++] = (int32_t)left;
    }
    return true;
}
