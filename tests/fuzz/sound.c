/* sound.c — fuzz target for files of sounds. Bytes are a sound, of which head and samples tell one
 * length, or an error; whatever becomes of the child process that reads them, the next sound is
 * read. */
#include <mx/image_sound.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST = 1 << 16 };

static void need(bool holds) {
    if (!holds) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static MxArena kept = {.name = "reader"};
    static MxSounds *sounds;
    static float samples[MOST];
    MxArena arena = {.name = "fuzz"};
    MxError err = {0};
    int64_t found;
    const MxWhere where = {.file = "fuzz"};
    if (!sounds) need(mx_sounds_open(&kept, MOST, &sounds, &err));
    const char *path = mx_arena_printf(&arena, "/tmp/mx_fuzz_%d.sound", (int)getpid());
    FILE *file = fopen(path, "wb");
    need(file && fwrite(data, 1, size, file) == size);
    need(!fclose(file));
    bool is_seen = mx_sound_look(sounds, path, where, &found, &err);
    need(is_seen ? found >= MX_SOUND_LEAST : err.count == 1);
    if (is_seen && found <= MOST)
        need(mx_sound_read(sounds, path, where, found, samples, &err) != (err.count == 1));
    remove(path);
    mx_error_release(&err);
    mx_arena_release(&arena);
    return 0;
}
