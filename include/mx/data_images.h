/* data_images.h — the images and sounds of prompts: which ones a record names, what stands for them
 * in its text, and their pixels. Those of datasets' records come with batches (data.h). */
#ifndef MX_DATA_IMAGES_H
#define MX_DATA_IMAGES_H

#include <mx/chat.h>
#include <mx/data.h>
#include <mx/family_encoder.h>

/* What reads them. */
typedef struct MxSeer MxSeer;
/* Those of one prompt. */
typedef struct MxPictures MxPictures;

/* What the model is given of them. */
typedef struct MxViews {
    int64_t n;
    const float *pixels;       /* [n, values of one] as mx_vision_row says */
    const MxVisionGrid *grids; /* [n] NULL = views have none of their own */
    int64_t chunks;            /* of sounds, and, as mx_audio_fill reads them, … */
    const float *frames;       /* … [chunks, frames, bins], … */
    const int32_t *left;       /* … [chunks] */
} MxViews;

typedef struct MxSeerHow {
    MxVision vision;              /* without an encoder images are errors, … */
    MxHearing hearing;            /* … and sounds */
    const MxTokenizer *tokenizer; /* NULL = there is none */
    const char *tokenizer_dir;    /* its folder, for preprocessor_config.json; NULL = none */
    bool only_data;               /* images are data: URLs, no files */
} MxSeerHow;

/* mx_seer_new — nothing is opened before the first image is met. */
MxSeer *mx_seer_new(MxArena *arena, MxSeerHow how);
/* mx_seer_find — the images that an object names: items {"type": "image"} of its "messages" by
 * "path", "image" or "url"; for those that name none, or where no message has such an item,
 * members "image" and "images", whose places are the marks in the text; and
 * sounds in the same way: items {"type": "audio"} by "audio", "path" or "url", members "audio" and
 * "audios". A name is a file's, which
 * counts from where.file, or a data: URL in base64.
 *   out  NULL = it has none
 * Errors: what is no name, no file or no image; a model that sees none; the tokenizer has no such
 * token; see preprocessor_config.json in docs/IMAGES.md. */
bool mx_seer_find(MxArena *arena, MxSeer *seer, const MxJson *record, MxWhere where,
                  MxPictures **out, MxError *err);
/* mx_seer_tell — a text with what stands for images in the place of each mark of one; with
 * puts_first those without a mark are put first. Without pictures the text is as it was. */
void mx_seer_tell(MxArena *arena, const MxSeer *seer, MxPictures *pictures, bool puts_first,
                  MxRendered *text);
/* mx_seer_index — which row of all those that the images become each token is, from 1 on, 0 = a
 * text's [tokens.n], where each view has as many rows as it has at most; NULL = there are none.
 * Errors: places and images are not as many. */
bool mx_seer_index(MxArena *arena, const MxSeer *seer, const MxPictures *pictures, MxTokens tokens,
                   MxWhere where, const int32_t **index, MxError *err);
/* mx_seer_read — all views, in the arena. Errors: files that are damaged or have gone. */
bool mx_seer_read(MxArena *arena, const MxSeer *seer, const MxPictures *pictures, MxViews *out,
                  MxError *err);
/* mx_batch_views — what row `row` of a whole batch shows, as mx_seer_read has it, and as
 * mx_seer_index which row of that each of its first n tokens is; NULL = it shows nothing. */
const int32_t *mx_batch_views(MxArena *arena, const MxVision *vision, const MxHearing *hearing,
                              const MxBatch *batch, int64_t row, int64_t n, MxViews *out);

#endif
