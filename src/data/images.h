/* images.h — private to the room: the images of records. */
#ifndef DATA_IMAGES_H
#define DATA_IMAGES_H

#include "fields.h"
#include "source.h"

#include <mx/image.h>

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
} Seer;

/* Files of a record's images, in the order in which they are told. */
typedef struct Pictures {
    const char **path; /* [n], as they are opened */
    MxImageSize *size; /* [n], once they were looked at */
    int n, cap;
    int n_places; /* for one in the record's texts, once they were told */
} Pictures;

/* seer_open — for a dataset with images; NULL without. Errors: a tokenizer that has no such token;
 * preprocessor_config.json beside it that asks for something else than resizing, bilinear, to the
 * model's size, and scaling. */
bool seer_open(MxArena *arena, const MxDataConfig *config, Seer **out, MxError *err);

/* preprocessor_read — the values of bytes, by preprocessor_config.json beside the tokenizer or, of
 * transformers 5, the part of processor_config.json; without, -1 … 1 or, of some encoders, 0 … 1.
 * Errors: what they say is not as the config has it, or not available. */
bool preprocessor_read(MxArena *arena, const MxDataConfig *config, Seer *seer, MxError *err);

/* pictures_of — those of a record: what items {"type": "image"} of its messages name ("path",
 * "image" or "url"), and for those that name none, or where there are no messages, what the image
 * column lists. Errors: what is no name of a file; more names than items; more than the config
 * allows. messages  [n_messages] lists; NULL = none
 * pictures_look — their sizes. Errors: files that are no images, or not there. */
bool pictures_of(MxArena *arena, const Seer *seer, const Fields *record,
                 const MxJson *const messages[], int n_messages, MxWhere where, Pictures *out,
                 MxError *err);
bool pictures_look(MxArena *arena, const Seer *seer, Pictures *pictures, MxWhere where,
                   MxError *err);

/* pictures_tell — a text with what stands for images in the place of each mark of one; n_missing
 * more are put first. Spans move with it. A record's texts follow one another: its places are
 * counted. pictures_tokens — how many tokens all images are. */
void pictures_tell(MxArena *arena, const Seer *seer, Pictures *pictures, int n_missing,
                   MxRendered *text);
int64_t pictures_tokens(const Seer *seer, const Pictures *pictures);
/* pictures_views — how many views they are. */
int64_t pictures_views(const Seer *seer, const Pictures *pictures);
/* pictures_marked — how many marks of images a text has. */
int pictures_marked(const Seer *seer, const char *text, size_t n);

/* pictures_check — that every image has its place in the texts, and that so many tokens of them are
 * left. */
bool pictures_check(const Seer *seer, const Pictures *pictures, int64_t n_tokens, MxWhere where,
                    MxError *err);

/* seer_views — the values of all views of some images, as mx_vision_row says, and their grids.
 *   rgb  room for all views of a picture; out  zeros
 * seer_index — of a row of tokens [length]: which token of all images stands there, from 1 on, or
 * 0, where each view counts as many as it has at most. */
bool seer_views(const Seer *seer, const Pictures *pictures, MxWhere where, uint8_t *rgb,
                const DataSeen *out, MxError *err);
void seer_index(const Seer *seer, const Pictures *pictures, const int32_t *tokens, int64_t length,
                int32_t *index);

#endif
