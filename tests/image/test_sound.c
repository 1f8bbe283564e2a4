/* test_sound.c — files of sounds as samples and frames, against those of transformers and soxr
 * (scripts/golden_sounds.py), and files that are none. */
#include "image_test.h"

#include <mx/image_sound.h>

#include <math.h>
#include <sndfile.h>
#include <stdio.h>
#include <unistd.h>

#include "common/goldens.h"

enum { N = 3360, BINS = 128, EVERY_FRAME = 7, EVERY_BIN = 4, EVERY_SAMPLE = 40, MOST = 16000 };

static MxArena arena = {.name = "test"};
static MxError err;
static MxSounds *sounds;

static void set_up(void) {
    ck_assert(mx_sounds_open(&arena, MOST, &sounds, &err));
}

static void tear_down(void) {
    mx_error_release(&err);
    mx_arena_release(&arena);
}

/* The script's sound. */
static int16_t sample(int64_t i) {
    bool is_pause = i >= 1800 && i < 2600;
    int64_t wave = ((7 * i * i + 13 * i) % 2001 - 1000) * 16;
    return is_pause ? (int16_t)0 : (int16_t)wave;
}

static const char *file_named(const char *name) {
    ck_assert(mx_dir_make("build/tests/sounds", &err));
    return mx_arena_printf(&arena, "build/tests/sounds/%s.%d", name, (int)getpid());
}

/* A WAV by hand: what is after "fmt ", and the samples. */
static MxBytes wav_of(int code, int bits, int channels, int rate, const void *data, size_t bytes) {
    uint8_t *out = mx_arena_alloc(&arena, bytes + 44);
    const uint32_t sizes[] = {(uint32_t)bytes + 36, 16, (uint32_t)bytes};
    const int frame = channels * bits / 8;
    const uint16_t shape[] = {(uint16_t)code, (uint16_t)channels};
    const uint32_t speed[] = {(uint32_t)rate, (uint32_t)(rate * frame)};
    const uint16_t width[] = {(uint16_t)frame, (uint16_t)bits};
    memcpy(out, "RIFF....WAVEfmt ", 16);
    memcpy(out + 4, &sizes[0], 4);
    memcpy(out + 16, &sizes[1], 4);
    memcpy(out + 20, shape, 4);
    memcpy(out + 24, speed, 8);
    memcpy(out + 32, width, 4);
    memcpy(out + 36, "data", 4);
    memcpy(out + 40, &sizes[2], 4);
    memcpy(out + 44, data, bytes);
    return (MxBytes){out, bytes + 44};
}

static const char *put(const char *name, MxBytes file) {
    const char *path = file_named(name);
    ck_assert(mx_file_write(path, file.data, file.size, &err));
    return path;
}

static float *read_all(const char *path, int64_t n) {
    int64_t found;
    float *out = mx_new_n(&arena, float, n);
    ck_assert_msg(mx_sound_look(sounds, path, MX_NOWHERE, &found, &err), "%s", err.text.data);
    ck_assert_int_eq(found, n);
    ck_assert_msg(mx_sound_read(sounds, path, MX_NOWHERE, n, out, &err), "%s", err.text.data);
    return out;
}

/* In every width of WAV, alone and beside a second channel that is 0. */
static const struct {
    int code, bits;
    double scale; /* of a sample of 16 bits */
} widths[] = {{1, 8, 1.0 / 256}, {1, 16, 1}, {1, 24, 256}, {1, 32, 65536}, {3, 32, 1.0 / 32768}};

START_TEST(samples_are_those_of_the_file) {
    for (int channels = 1; channels <= 2; channels++) {
        const int bytes = widths[_i].bits / 8;
        uint8_t *data = mx_new_n(&arena, uint8_t, (int64_t)N * channels * bytes + 8);
        memset(data, bytes == 1 ? 128 : 0, (size_t)(N * channels * bytes));
        for (int64_t i = 0; i < N; i++) {
            double value = (double)sample(i) * widths[_i].scale;
            float real = (float)value;
            int32_t whole = (int32_t)floor(value) + (bytes == 1 ? 128 : 0);
            memcpy(data + i * channels * bytes,
                   widths[_i].code == 3 ? (void *)&real : (void *)&whole, (size_t)bytes);
        }
        const char *path =
            put("widths.wav", wav_of(widths[_i].code, widths[_i].bits, channels, MX_SOUND_RATE,
                                     data, (size_t)(N * channels * bytes)));
        const float *got = read_all(path, N);
        for (int64_t i = 0; i < N; i++) {
            double wanted = (double)sample(i) / 32768 / channels;
            ck_assert_double_le(fabs((double)got[i] - wanted), bytes == 1 ? 1.0 / 128 : 1e-7);
        }
    }
}
END_TEST

/* What a library compressed without loss is the same; with loss, of the same length. */
static const struct {
    const char *name;
    int format;
    bool is_exact;
} formats[] = {
    {"a.flac", SF_FORMAT_FLAC | SF_FORMAT_PCM_16, true},
    {"a.ogg", SF_FORMAT_OGG | SF_FORMAT_VORBIS, false},
    {"a.aiff", SF_FORMAT_AIFF | SF_FORMAT_PCM_16, true},
};

START_TEST(other_formats_are_read) {
    SF_INFO info = {.samplerate = MX_SOUND_RATE, .channels = 1, .format = formats[_i].format};
    const char *path = file_named(formats[_i].name);
    SNDFILE *file = sf_open(path, SFM_WRITE, &info);
    int16_t data[N];
    for (int64_t i = 0; i < N; i++) data[i] = sample(i);
    ck_assert(file && sf_write_short(file, data, N) == N && !sf_close(file));
    const float *got = read_all(path, N);
    for (int64_t i = 0; formats[_i].is_exact && i < N; i++)
        ck_assert(got[i] == (float)sample(i) / 32768);
}
END_TEST

static const MxJson *golden(void) {
    MxBytes bytes;
    const char *path = goldens_need(&arena, "sounds/frames.json");
    ck_assert(mx_file_read(&arena, path, 1 << 20, &bytes, &err));
    const MxJson *json = mx_json_parse(&arena, (const char *)bytes.data, bytes.size, path, &err);
    ck_assert(json);
    return json;
}

static void check_number(const MxJson *list, size_t i, float got, double most) {
    double wanted;
    ck_assert(mx_json_number(mx_json_at(list, i), &wanted));
    ck_assert_msg(fabs((double)got - wanted) <= most, "%zu: %g, wanted %g", i, (double)got, wanted);
}

START_TEST(frames_are_those_of_transformers) {
    static float samples[N], frames[N / MX_SOUND_HOP * BINS];
    const MxJson *wanted = mx_json_get(golden(), "frames");
    for (int64_t i = 0; i < N; i++) samples[i] = (float)sample(i) / 32768;
    mx_sound_frames(samples, N, BINS, frames);
    ck_assert_uint_eq(mx_json_length(wanted), N / MX_SOUND_HOP / EVERY_FRAME);
    for (size_t f = 0; f < mx_json_length(wanted); f++)
        for (size_t b = 0; b < BINS / EVERY_BIN; b++)
            check_number(mx_json_at(wanted, f), b, frames[f * EVERY_FRAME * BINS + b * EVERY_BIN],
                         1e-4);
}
END_TEST

static const int rates[] = {44100, 8000};

START_TEST(other_rates_become_those_of_soxr) {
    const int64_t n = ((int64_t)N * MX_SOUND_RATE + rates[_i] - 1) / rates[_i];
    const MxJson *wanted = mx_json_get(golden(), mx_arena_printf(&arena, "%d", rates[_i]));
    int16_t data[N];
    for (int64_t i = 0; i < N; i++) data[i] = sample(i);
    const float *got = read_all(put("rate.wav", wav_of(1, 16, 1, rates[_i], data, sizeof data)), n);
    ck_assert_uint_eq(mx_json_length(wanted), (size_t)(n + EVERY_SAMPLE - 1) / EVERY_SAMPLE);
    for (size_t i = 0; i < mx_json_length(wanted); i++)
        check_number(wanted, i, got[i * EVERY_SAMPLE], 1e-4);
}
END_TEST

/* ---- files that are none */

static void check_told(const char *path, const char *told) {
    int64_t n;
    float *samples = mx_new_n(&arena, float, MOST);
    bool ok = mx_sound_look(sounds, path, (MxWhere){"records.jsonl", 3, 0}, &n, &err) &&
              mx_sound_read(sounds, path, (MxWhere){"records.jsonl", 3, 0}, n, samples, &err);
    ck_assert_msg(!ok && strstr(err.text.data, told) && strstr(err.text.data, "records.jsonl:3"),
                  "%s", ok ? "read" : err.text.data);
    ck_assert_int_eq(err.exit, MX_EXIT_BAD_INPUT);
    mx_error_release(&err);
}

START_TEST(what_is_no_sound_is_told) {
    static int16_t data[2 * MOST];
    MxBytes good = wav_of(1, 16, 1, MX_SOUND_RATE, data, N * sizeof *data);
    check_told("tests/image/none.wav", "no such file");
    check_told(put("text.wav", (MxBytes){(uint8_t[]){"no sound"}, 8}), "is no sound of WAV");
    check_told(put("empty.wav", (MxBytes){(uint8_t[]){0}, 0}), "is no sound of WAV");
    check_told(put("short.wav", wav_of(1, 16, 1, MX_SOUND_RATE, data, 400)),
               "has 200 samples at 16000 Hz, wanted at least 201");
    int64_t n;
    const char *path = put("long.wav", wav_of(1, 16, 1, MX_SOUND_RATE, data, sizeof data));
    ck_assert(mx_sound_look(sounds, path, MX_NOWHERE, &n, &err) && n == 2 * MOST);
    check_told("data:audio/wav;base64,!", "is no base64");
    good.size = 20;
    check_told(put("cut.wav", good), "is no sound of WAV");
}
END_TEST

/* Every byte of the head, and some behind it, as something else: an error or a sound, no end. */
START_TEST(damage_is_no_crash) {
    static int16_t data[N];
    for (int64_t i = 0; i < N; i++) data[i] = sample(i);
    MxBytes file = wav_of(1, 16, 1, 44100, data, sizeof data);
    uint8_t *bytes = (uint8_t *)(uintptr_t)file.data;
    float *samples = mx_new_n(&arena, float, MOST);
    for (size_t at = 0; at < 60; at++)
        for (int bit = 0; bit < 8; bit += 3) {
            int64_t n;
            bytes[at] ^= (uint8_t)(1 << bit);
            const char *path = put("damaged.wav", file);
            if (mx_sound_look(sounds, path, MX_NOWHERE, &n, &err)) {
                ck_assert(n >= MX_SOUND_LEAST);
                if (n <= MOST) mx_sound_read(sounds, path, MX_NOWHERE, n, samples, &err);
            }
            ck_assert_msg(!err.count || !strstr(err.text.data, "crashed"), "%s", err.text.data);
            mx_error_release(&err);
            bytes[at] ^= (uint8_t)(1 << bit);
        }
}
END_TEST

TCase *sound_case(void) {
    TCase *tcase = tcase_create("sounds");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, samples_are_those_of_the_file, 0, MX_COUNT(widths));
    tcase_add_loop_test(tcase, other_formats_are_read, 0, MX_COUNT(formats));
    tcase_add_test(tcase, frames_are_those_of_transformers);
    tcase_add_loop_test(tcase, other_rates_become_those_of_soxr, 0, MX_COUNT(rates));
    tcase_add_test(tcase, what_is_no_sound_is_told);
    tcase_add_test(tcase, damage_is_no_crash);
    return tcase;
}
