/* images.h — private to the room: the images and sounds of records. */
#ifndef DATA_IMAGES_H
#define DATA_IMAGES_H

#include "fields.h"
#include "source.h"

#include <mx/image.h>
#include <mx/image_sound.h>

/* What reads them, and what stands for them among tokens. */
typedef struct Seer {
    const MxDataImages *form;
    MxVision vision; /* of it */
    const MxEncoder *encoder;
    const MxTokenizer *tokenizer;
    MxImages *files;
    int32_t token;       /* of the tokenizer, that each token of an image is */
    int64_t least, most; /* pixels of a picture that keeps its size */
    float value[3][256]; /* of a byte, by colour */
    MxHearing hearing;   /* of the form; without an encoder sounds are errors */
    MxSounds *sounds;
    int32_t sound_token; /* as `token`; -1 = there is none */
} Seer;

/* Files of a record's sounds, as those of images. */
typedef struct SoundFiles {
    const char **path; /* [n] */
    int64_t *frames;   /* [n], once they were looked at */
    int64_t *samples;
    int n, cap, n_places;
} SoundFiles;

/* Files of a record's images, in the order in which they are told. */
typedef struct Pictures {
    const char **path; /* [n], as they are opened */
    MxImageSize *size; /* [n], once they were looked at */
    int n, cap;
    int n_places; /* for one in the record's texts, once they were told */
    SoundFiles sounds;
} Pictures;

/* seer_open — for a dataset with images; NULL without. Errors: a tokenizer that has no such token;
 * preprocessor_config.json beside it that asks for something else than resizing, bilinear, to the
 * model's size, and scaling. */
bool seer_open(MxArena *arena, const MxDataConfig *config, Seer **out, MxError *err);

/* preprocessor_read — the values of bytes, by preprocessor_config.json beside the tokenizer or, of
 * transformers 5, the part of processor_config.json; without, -1 … 1 or, of some encoders, 0 … 1.
 * Errors: what they say is not as the config has it, or not available. */
bool preprocessor_read(MxArena *arena, const MxDataConfig *config, Seer *seer, MxError *err);

/* message_images — messages whose texts have places for n images: where no item is an image or a
 * sound, one for each mark, `image_placeholder` or <image>, or else all before the first text of
 * the user. Source: trl 1.16, data_utils.py, prepare_multimodal_messages; the mark is that of
 * LLaVA's data. message_list_shows — whether any has an item that is an image or a sound. */
const MxJson *message_images(MxArena *arena, const Seer *seer, const MxJson *messages, size_t n);
bool message_list_shows(const MxJson *messages);

/* pictures_of — those of a record: what items {"type": "image"} of its messages name ("path",
 * "image" or "url"), and for those that name none, or where there are no messages, what the image
 * column lists; and its sounds, of items {"type": "audio"} ("audio", "path" or "url") or, where
 * there are no messages, of members "audio" and "audios". Errors: what is no name of a file; more
 * names than items; more than the config allows.
 *   messages  lists, of which the first n_messages are looked at, and the first n_places first get
 *             places for the images of the column (message_images)
 * pictures_look — their sizes. Errors: files that are no images, or not there. */
bool pictures_of(MxArena *arena, const Seer *seer, const Fields *record, const MxJson *messages[],
                 int n_messages, int n_places, MxWhere where, Pictures *out, MxError *err);
bool pictures_look(MxArena *arena, const Seer *seer, Pictures *pictures, MxWhere where,
                   MxError *err);

/* pictures_keep — a copy in another arena. pictures_are_same — files of the same names in the same
 * order; NULL = a record has none. */
Pictures *pictures_keep(MxArena *arena, const Pictures *pictures);
bool pictures_are_same(const Pictures *a, const Pictures *b);

/* pictures_tell — a text with what stands for images and sounds in the place of each mark of one;
 * n_missing images and n_quiet sounds more are put first. Spans move with it. A record's texts
 * follow one another: its places are counted. pictures_tokens — how many tokens all images are. */
void pictures_tell(MxArena *arena, const Seer *seer, Pictures *pictures, int n_missing, int n_quiet,
                   MxRendered *text);
/* pictures_tell_whole — the same of a text that is all of a record, or its beginning, as others
 * are: the record has the places of the text with the most. */
void pictures_tell_whole(MxArena *arena, const Seer *seer, Pictures *pictures, int n_missing,
                         MxRendered *text);
/* pictures_add_views — the text that becomes the tokens of an image. */
void pictures_add_views(const Seer *seer, const Pictures *pictures, int i, MxText *out);
int64_t pictures_tokens(const Seer *seer, const Pictures *pictures);
/* pictures_views — how many views they are. */
int64_t pictures_views(const Seer *seer, const Pictures *pictures);
/* pictures_marked — how many marks of images a text has; sounds_marked — of sounds. */
int pictures_marked(const Seer *seer, const char *text, size_t n);
int sounds_marked(const Seer *seer, const char *text, size_t n);

/* pictures_check — that every image and sound has its place in the texts, and that so many tokens
 * of them are left. seer_reads — whether a token is of one. */
static inline bool seer_reads(const Seer *seer, int32_t token) {
    return token == seer->token || (token == seer->sound_token && token >= 0);
}
bool pictures_check(const Seer *seer, const Pictures *pictures, int64_t n_tokens, MxWhere where,
                    MxError *err);

/* seer_views — the values of all views of some images, as mx_vision_row says, and their grids.
 *   rgb  room for all views of a picture; out  zeros; samples  room for a sound
 * seer_index — of a row of tokens [length]: which token of all images stands there, from 1 on, or
 * 0, where each view counts as many as it has at most; behind so many, `rows`, each chunk of a
 * sound. */
bool seer_views(const Seer *seer, const Pictures *pictures, MxWhere where, uint8_t *rgb,
                const DataSeen *out, MxError *err);
void seer_index(const Seer *seer, const Pictures *pictures, const int32_t *tokens, int64_t length,
                int64_t rows, int32_t *index);

/* ---- sounds (sounds.c) */

/* sounds_open — what reads them, if the form has an encoder. sounds_add — a file's name, of an item
 * that says it; NULL = it says none. sounds_look — their lengths. Errors: as of pictures_look; too
 * long together. */
bool sounds_open(MxArena *arena, MxWhere where, Seer *seer, MxError *err);
bool sounds_add(MxArena *arena, const Seer *seer, const MxJson *item, MxWhere where, Pictures *out,
                MxError *err);
bool sounds_look(MxArena *arena, const Seer *seer, Pictures *pictures, MxWhere where, MxError *err);
/* sounds_add_tokens — the text that becomes the tokens of a sound; sounds_tokens — how many all
 * are; sounds_chunks — in how many chunks. sounds_index — as seer_index. */
void sounds_add_tokens(const Seer *seer, const Pictures *pictures, int i, MxText *out);
int64_t sounds_tokens(const Seer *seer, const Pictures *pictures);
int64_t sounds_chunks(const Seer *seer, const Pictures *pictures);
void sounds_index(const Seer *seer, const Pictures *pictures, const int32_t *tokens, int64_t length,
                  int64_t rows, int32_t *index);
/* sounds_read — frames of all, and what is left from each chunk on. samples  [sounds_most] */
bool sounds_read(const Seer *seer, const Pictures *pictures, MxWhere where, float *samples,
                 const DataSeen *out, MxError *err);
/* seer_path — the file that a name means, what  "an image"; seer_find_token — the token that a text
 * is. */
bool seer_path(MxArena *arena, const Seer *seer, const char *name, const char *what, MxWhere where,
               const char **path, MxError *err);
bool seer_find_token(MxArena *arena, const Seer *seer, const char *text, const char *what,
                     MxWhere where, int32_t *token, MxError *err);

#endif
