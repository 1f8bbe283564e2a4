/* image_sound.h — sounds in files of WAV, FLAC, Ogg and MP3, as samples of one channel at 16 kHz,
 * and spectrograms of these. As pictures, files may be hostile: a child process reads them. */
#ifndef MX_IMAGE_SOUND_H
#define MX_IMAGE_SOUND_H

#include <mx/base.h>

/* Limits of one sound: bytes of a file; hertz and channels that it may have. */
enum { MX_SOUND_MOST_BYTES = 256 << 20, MX_SOUND_MOST_RATE = 768000, MX_SOUND_MOST_CHANNELS = 64 };

/* What samples are made at; and of a spectrogram samples of a frame, and between two. A sound has
 * at least MX_SOUND_LEAST of them, else its frames cannot be mirrored at both ends. */
enum {
    MX_SOUND_RATE = 16000,
    MX_SOUND_WINDOW = 400,
    MX_SOUND_HOP = 160,
    MX_SOUND_LEAST = MX_SOUND_WINDOW / 2 + 1
};

/* Who reads sounds. */
typedef struct MxSounds MxSounds;

/* mx_sounds_open — a reader of sounds of so many samples at most; see mx_images_open.
 * mx_sound_look — how many samples a sound has, as its file's head says. mx_sound_read — that many,
 * f32 [n] between -1 and 1: channels are averaged, and another rate becomes MX_SOUND_RATE with
 * libsoxr's high quality, as librosa.load does.
 *   path  a file, or a data: URL
 * Errors: no such file; no sound of a format that libsndfile knows; too short; other samples than
 * its head says, or than when it was looked at; damaged; the library crashes, or does not come to
 * an end. */
bool mx_sounds_open(MxArena *arena, int64_t most_samples, MxSounds **out, MxError *err);
bool mx_sound_look(MxSounds *sounds, const char *path, MxWhere where, int64_t *n, MxError *err);
bool mx_sound_read(MxSounds *sounds, const char *path, MxWhere where, int64_t n, float *samples,
                   MxError *err);

/* mx_sound_frames — the log-mel spectrogram, out f32 [n / MX_SOUND_HOP, bins]: power spectra of
 * frames under a Hann window, mirrored at both ends, in triangles along Slaney's mel scale from 0
 * to 8 kHz; their logarithms to base 10, at most 8 below the largest, plus 4, over 4. n is at least
 * MX_SOUND_LEAST. Source: transformers 5.23, models/whisper/feature_extraction_whisper.py,
 * audio_utils.py (mel_filter_bank). */
void mx_sound_frames(const float *samples, int64_t n, int64_t bins, float *out);

#endif
