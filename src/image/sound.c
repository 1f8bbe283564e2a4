/* sound.c — sounds in files: libsndfile decodes them, libsoxr makes samples of 16 kHz. */
#include "internal.h"

#include <sndfile.h>
#include <soxr.h>

struct MxSounds {
    Reader *reader;
    int64_t most;
};

/* ---- in the child: the file as libsndfile reads it */

typedef struct Memory {
    MxBytes file;
    sf_count_t at;
} Memory;

static sf_count_t length_of(void *data) {
    return (sf_count_t)((Memory *)data)->file.size;
}

static sf_count_t seek_in(sf_count_t offset, int whence, void *data) {
    Memory *m = data;
    sf_count_t from = whence == SEEK_CUR ? m->at : whence == SEEK_END ? length_of(m) : 0;
    if (from + offset < 0 || from + offset > length_of(m)) return -1;
    return m->at = from + offset;
}

static sf_count_t read_from(void *to, sf_count_t count, void *data) {
    Memory *m = data;
    sf_count_t left = length_of(m) - m->at, n = count < left ? count : left;
    if (n <= 0) return 0;
    memcpy(to, (const char *)m->file.data + m->at, (size_t)n);
    m->at += n;
    return n;
}

static sf_count_t tell_of(void *data) {
    return ((Memory *)data)->at;
}

/* Samples at MX_SOUND_RATE: as many as librosa makes, rounded up. */
static int64_t count_of(const SF_INFO *info) {
    return (info->frames * MX_SOUND_RATE + info->samplerate - 1) / info->samplerate;
}

static SNDFILE *open_sound(Memory *memory, SF_INFO *info) {
    static SF_VIRTUAL_IO from = {
        .get_filelen = length_of, .seek = seek_in, .read = read_from, .tell = tell_of};
    SNDFILE *file = sf_open_virtual(&from, SFM_READ, info, memory);
    if (!file) image_fail("is no sound of WAV, FLAC, Ogg or MP3: %s", sf_strerror(NULL));
    if (info->samplerate < 1 || info->samplerate > MX_SOUND_MOST_RATE)
        image_fail("found a rate of %d Hz, wanted 1 to %d", info->samplerate, MX_SOUND_MOST_RATE);
    if (info->channels < 1 || info->channels > MX_SOUND_MOST_CHANNELS)
        image_fail("found %d channels, wanted 1 to %d", info->channels, MX_SOUND_MOST_CHANNELS);
    if (info->frames < 0 || info->frames > INT64_MAX / MX_SOUND_MOST_RATE)
        image_fail("does not say how long it is");
    if (count_of(info) < MX_SOUND_LEAST)
        image_fail("has %lld samples at %d Hz, wanted at least %d, which is a frame",
                   (long long)count_of(info), MX_SOUND_RATE, MX_SOUND_LEAST);
    return file;
}

/* The next samples, averaged over channels. */
static size_t read_mono(SNDFILE *file, int channels, float *wide, float *out, size_t n) {
    sf_count_t got = sf_readf_float(file, wide, (sf_count_t)n);
    for (sf_count_t i = 0; i < got; i++) {
        float sum = 0;
        for (int c = 0; c < channels; c++) sum += wide[i * channels + c];
        out[i] = sum / (float)channels;
    }
    return got > 0 ? (size_t)got : 0;
}

/* All of them as they are in the file; then out [n] at the rate that is wanted. What another rate
 * lacks at the end is 0. */
static void read_all(MxArena *arena, SNDFILE *file, const SF_INFO *info, float *out, int64_t n) {
    enum { BLOCK = 4096 };
    float *wide = mx_new_n(arena, float, (int64_t)BLOCK * info->channels);
    float *mono = mx_new_n(arena, float, info->frames + BLOCK);
    int64_t all = 0;
    for (size_t got = 1; got && all <= info->frames; all += (int64_t)got)
        got = read_mono(file, info->channels, wide, mono + all, all < info->frames ? BLOCK : 1);
    if (all != info->frames)
        image_fail("says that it has %lld samples, but has %s", (long long)info->frames,
                   all < info->frames ? mx_arena_printf(arena, "%lld", (long long)all) : "more");
    memset(out, 0, (size_t)n * sizeof *out);
    if (info->samplerate == MX_SOUND_RATE) {
        memcpy(out, mono, (size_t)n * sizeof *out);
        return;
    }
    size_t done = 0;
    const soxr_quality_spec_t quality = soxr_quality_spec(SOXR_HQ, 0);
    soxr_error_t fault = soxr_oneshot(info->samplerate, MX_SOUND_RATE, 1, mono, (size_t)all, NULL,
                                      out, (size_t)n, &done, NULL, &quality, NULL);
    if (fault) image_fail("cannot be resampled from %d Hz: %s", info->samplerate, fault);
}

static void read_sound(MxArena *arena, MxBytes bytes, const ReaderWish *wish, void *room,
                       size_t room_bytes, ReaderFacts *out) {
    Memory memory = {.file = bytes};
    SF_INFO info = {0};
    SNDFILE *file = open_sound(&memory, &info);
    out->samples = count_of(&info);
    bool fits = (size_t)out->samples <= room_bytes / sizeof(float); /* else it has changed */
    if (wish->samples && fits) read_all(arena, file, &info, room, out->samples);
    sf_close(file);
}

static const ReaderKind kind = {
    .name = "sound", .most_bytes = MX_SOUND_MOST_BYTES, .read = read_sound};

/* ---- in the parent */

bool mx_sounds_open(MxArena *arena, int64_t most_samples, MxSounds **out, MxError *err) {
    MxSounds *sounds = mx_new(arena, MxSounds);
    sounds->most = most_samples;
    *out = sounds;
    return image_reader_open(arena, &kind, (size_t)most_samples * sizeof(float), &sounds->reader,
                             err);
}

bool mx_sound_look(MxSounds *sounds, const char *path, MxWhere where, int64_t *n, MxError *err) {
    ReaderFacts facts;
    if (!image_reader_ask(sounds->reader, path, where, &(ReaderWish){0}, &facts, NULL, 0, err))
        return false;
    *n = facts.samples;
    return true;
}

bool mx_sound_read(MxSounds *sounds, const char *path, MxWhere where, int64_t n, float *samples,
                   MxError *err) {
    ReaderFacts facts;
    MX_ASSERT(n <= sounds->most);
    if (!image_reader_ask(sounds->reader, path, where, &(ReaderWish){.samples = true}, &facts,
                          samples, (size_t)n * sizeof *samples, err))
        return false;
    return facts.samples == n || mx_fail(err, MX_EXIT_BAD_INPUT, where,
                                         "sound \"%.60s\" has changed: %lld samples, not %lld",
                                         path, (long long)facts.samples, (long long)n);
}
