/* images.h — private to the room: the images of records. */
#ifndef DATA_IMAGES_H
#define DATA_IMAGES_H

#include "fields.h"
#include "source.h"

#include <mx/image.h>

/* What reads them, and what stands for them among tokens. */
typedef struct Seer {
    const MxDataImages *form;
    const MxTokenizer *tokenizer;
    MxImages *files;
    int32_t token;            /* of the tokenizer, that each token of an image is */
    const char *inside;       /* the text that becomes an image's tokens */
    double scale[3], term[3]; /* a value is byte · scale + term, by colour */
} Seer;

/* Files of a record's images, in the order in which they are told. */
typedef struct Pictures {
    const char **path; /* [n], as they are opened */
    int n, cap;
} Pictures;

/* seer_open — for a dataset with images; NULL without. Errors: a tokenizer that has no such token;
 * preprocessor_config.json beside it that asks for something else than resizing, bilinear, to the
 * model's size, and scaling. */
bool seer_open(MxArena *arena, const MxDataConfig *config, Seer **out, MxError *err);

/* pictures_of — those of a record: what items {"type": "image"} of its messages name ("path",
 * "image" or "url"), and for those that name none, or where there are no messages, what the image
 * column lists. Errors: what is no name of a file; more names than items; more than the config
 * allows. messages  [n_messages] lists; NULL = none
 * pictures_look — Errors: files that are no images, or not there. By one thread at a time. */
bool pictures_of(MxArena *arena, const Seer *seer, const Fields *record,
                 const MxJson *const messages[], int n_messages, MxWhere where, Pictures *out,
                 MxError *err);
bool pictures_look(const Seer *seer, const Pictures *pictures, MxWhere where, MxError *err);

/* pictures_tell — a text with what stands for images in the place of each name of one; so many more
 * of these are put first as there are images without any. Spans move with it. */
void pictures_tell(MxArena *arena, const Seer *seer, int n_missing, MxRendered *text);
/* pictures_named — how often a text has the name of an image. */
int pictures_named(const Seer *seer, const char *text, size_t n);

/* seer_row — of a row of tokens [length]: which token of all images stands there, from 1 on, or 0;
 * and the values of its images.
 *   rgb  room for a picture; pixels  [images, patches, patch, patch, 3] */
bool seer_row(const Seer *seer, const Pictures *pictures, MxWhere where, uint8_t *rgb,
              float *pixels, MxError *err);
void seer_index(const Seer *seer, const int32_t *tokens, int64_t length, int32_t *index);

#endif
