/* family_encoder.h — encoders of images, as data: the decoders that they go with, how a picture
 * becomes patches and tokens, and what others call their parts. What a tower computes is in the
 * model room (vision_<name>.c). Nothing here depends on a config.
 *
 * Adding one: docs/adding/encoder.md. */
#ifndef MX_FAMILY_ENCODER_H
#define MX_FAMILY_ENCODER_H

#include <mx/family_audio.h>

/* What says how many patches become a token. */
typedef enum MxPools {
    MX_POOLS_TO_LENGTH, /* vision_output_length: of so many tokens each is a square of patches */
    MX_POOLS_BY_RATIO,  /* pixel_shuffle_ratio_for_vit: tokens over patches, of a side */
    MX_POOLS_BY_MERGE,  /* spatial_merge_size_for_vit: patches of a side of the square */
} MxPools;

/* What names begin with, in the place of what. */
typedef struct MxHfSpelling {
    const char *with, *without;
} MxHfSpelling;

/* What is said of an encoder in a folder of Hugging Face's, besides the tables of ckpt. */
typedef struct MxHfEncoder {
    const char *model_type; /* of its vision_config; of several a blank between them */
    const char *tower;      /* what stands before names of the rest; NULL = their rows tell all */
    const char *layers;     /* … before the number of a layer, … */
    const char *deep;    /* … and of what adds to a layer of the decoder; NULL = nothing does */
    int64_t mrope[3];    /* mrope_section where it is missing */
    bool keeps_experts;  /* the text model's have the form of a text model alone */
    MxHfSpelling text;   /* of the text model's tensors */
    MxHfSpelling held;   /* of its modules in memory; with NULL = as text */
    bool has_text_class; /* the text model alone can be loaded from such a folder, as that */
    MxHfSpelling spelled[4]; /* as older or newer releases write names */
} MxHfEncoder;

/* A prompt and its completion as a user's turn and the model's. */
typedef struct MxTurns {
    const char *before, *behind; /* the prompt */
    const char *end;             /* behind the completion */
} MxTurns;

typedef struct MxEncoder {
    const char *name;     /* vision_encoder_block */
    const char *decoders; /* decoder blocks that it goes with, a blank between them */
    /* Paths of MaxText's below "vision_encoder/": the tower, which can be frozen, and what makes
     * the decoder's width of its output; and below the tower a layer, before its number. */
    const char *tower, *projector, *layer;
    /* Below the tower, before its number, what makes rows of a layer's output that are added behind
     * a layer of the decoder (deepstack_visual_indexes_for_vit); NULL = nothing does. */
    const char *deep;
    MxPools pools;
    int64_t default_tokens; /* of MX_POOLS_TO_LENGTH, where vision_output_length says none */
    bool sees_itself;       /* in the decoder tokens of an image see each other, … */
    bool in_windows;        /* … in layers alone that see a window */
    bool has_tiles;  /* a picture is max_num_tiles_for_vit tiles at most, and a small one of all of
                        it behind them if there are several */
    bool keeps_form; /* a picture keeps its form: its grid has so many patches as fit into the room
                        for it */
    bool keeps_size; /* … and, as far as its sides are whole squares, its size, if it has neither
                        more pixels than there is room for nor fewer than least_pixels */
    int64_t least_pixels; /* where no file says otherwise */
    bool has_class;       /* behind the patches of a tile the tower has one more place */
    int first_place;      /* column and row of the first patch */
    bool keeps_squares;   /* the patches of a token stand one behind the other */
    bool mixes_places;    /* positions are learned for a square of patches, and those of other grids
                             are mixed of them */
    bool has_mrope;       /* tokens have a row and a column, by which use_mrope rotates them */
    bool has_own_stride;  /* patches touch each other, whatever conv_stride_for_vit says */
    bool splits_colours;  /* of a patch all of red stands before green and blue */
    bool rounds;          /* values of pixels are made in bf16 */
    bool is_cubic;        /* pictures are resized bicubic, else bilinear */
    bool drops;    /* between the layers that turn patches into tokens some values are dropped */
    bool is_plain; /* values of pixels are 0 … 1, else -1 … 1, where no file says otherwise */
    /* What the tokenizer calls what stands in a text for an image, before the image, for each of
     * its tokens, and behind it; and the text around these. */
    const char *mark, *begin, *token, *end, *around;
    /* Of several tiles: between two of a row, behind a row, and before the small picture, which
     * alone is what a picture of one tile has. */
    const char *beside, *below, *whole;
    /* Of records with a prompt and a completion. Source: MaxText multimodal/processor.py,
     * reformat_prompt and reformat_response @e591f30c. */
    MxTurns turns;
    MxHfEncoder hf;
    const MxAudioEncoder *audio; /* the encoder of sounds beside it (use_audio); NULL = none */
} MxEncoder;

/* mx_encoder_find — by its name; NULL = there is none. */
const MxEncoder *mx_encoder_find(const char *name);
/* mx_encoder_of_hf — by the model_type of a vision_config, beside a decoder; NULL = none. */
const MxEncoder *mx_encoder_of_hf(const char *model_type, const char *decoder_block);
/* mx_encoder_goes_with — whether it goes with a decoder block. */
bool mx_encoder_goes_with(const MxEncoder *encoder, const char *decoder_block);

/* All, with blanks between. */
extern const char mx_encoders_built[];

/* Patches of a view; 0 x 0 = there is no view. */
typedef struct MxVisionGrid {
    int32_t rows, columns;
} MxVisionGrid;

/* How a config's model sees images: as views, the picture or tiles of it, and these as patches of a
 * grid, of which it makes fewer tokens. A view that keeps the picture's form has a grid of its own,
 * of no more patches than there is room for. */
typedef struct MxVision {
    const MxEncoder *encoder;  /* NULL = the model sees none */
    int64_t images;            /* that a row of a batch has room for */
    int64_t tiles;             /* of an image at most */
    int64_t size, patch;       /* pixels of a side, of a view (0 = it keeps its form) and a patch */
    int64_t patches, channels; /* of a view */
    int64_t pool;              /* patches of a side of the square that becomes a token */
    int64_t tokens;            /* that a view takes in a row */
    int64_t learned;           /* patches of a side that have positions (mixes_places) */
    int64_t deep;              /* layers of the decoder behind which tokens add something */
    bool has_mrope;            /* the decoder rotates by rows and columns (use_mrope) */
    MxVisionGrid grid;         /* of a view, where it has none of its own */
} MxVision;

/* mx_vision_views — of an image at most. mx_vision_places — of a row of a batch in the tower.
 * mx_vision_row — values of the pixels of a row of a batch: f32 [images · views, patches, values of
 * a patch], each as the model's own preprocessing makes it of a byte; views of one image after
 * those of the other, and what is left over 0, also behind the patches of a view with fewer.
 * mx_vision_grids — views of a row of a batch that have grids of their own, 0 = none have.
 * mx_vision_pixels — of a view at most. */
static inline int64_t mx_vision_views(const MxVision *v) {
    return v->tiles > 1 ? v->tiles + 1 : 1;
}
static inline int64_t mx_vision_places(const MxVision *v) {
    return v->encoder ? v->images * mx_vision_views(v) * (v->patches + v->encoder->has_class) : 0;
}
static inline int64_t mx_vision_row(const MxVision *v) {
    return v->images * mx_vision_views(v) * v->patches * v->patch * v->patch * v->channels;
}

/* mx_vision_rows — tokens of a row's images at most. */
static inline int64_t mx_vision_rows(const MxVision *v) {
    return v->images * mx_vision_views(v) * v->tokens;
}

static inline int64_t mx_vision_grids(const MxVision *v) {
    return v->encoder && v->encoder->keeps_form ? v->images : 0;
}
static inline int64_t mx_vision_pixels(const MxVision *v) {
    return v->patches * v->patch * v->patch;
}

/* mx_vision_patch — which patch of a view, counted row by row, stands at place i of the tower. */
int64_t mx_vision_patch(const MxVision *v, MxVisionGrid grid, int64_t i);

/* What a tower is told of a place: the number of the view, from 1 on; which patch of it, row by
 * row, stands there, the class being the last; the patch's column and row, from the encoder's first
 * on, the class in 0. All are 0 where nothing stands. */
typedef enum MxPlaceFact {
    MX_PLACE_VIEW,
    MX_PLACE_PATCH,
    MX_PLACE_COLUMN,
    MX_PLACE_ROW,
    MX_PLACE_FACTS
} MxPlaceFact;

/* mx_vision_place — of place i of a row of a batch. grids [mx_vision_grids], NULL = views have none
 * of their own: then it is the same in every row. */
void mx_vision_place(const MxVision *v, const MxVisionGrid *grids, int64_t i,
                     int32_t out[MX_PLACE_FACTS]);
/* mx_vision_fill — of all places of a row of a batch, out[fact][place]. */
void mx_vision_fill(const MxVision *v, const MxVisionGrid *grids,
                    int32_t *const out[MX_PLACE_FACTS]);

/* A place's position where those of a grid are mixed: so much of each of the four learned ones
 * around it. Rows and columns of a grid of n patches stand on the learned side's at
 * linspace(0, side - 1, n). */
enum { MX_CORNERS = 4 };

/* Layers of a tower at most that add to the decoder's. */
enum { MX_MOST_DEEP = 64 };

/* mx_vision_mix — of all places of a row of a batch: which learned positions, row by row of their
 * square, and how much of each; 0 where nothing stands.
 *   corner, share  [mx_vision_places, MX_CORNERS] */
void mx_vision_mix(const MxVision *v, const MxVisionGrid *grids, int32_t *corner, float *share);

/* The positions of a token that use_mrope rotates it by. */
typedef enum MxMrope { MX_MROPE_TIME, MX_MROPE_ROW, MX_MROPE_COLUMN, MX_MROPE_KINDS } MxMrope;

/* mx_vision_mrope — those of a row's tokens: tokens of a text count on in all three; tokens of an
 * image have the first one's time, and rows and columns counted from there; what follows counts
 * behind the largest of these; tokens of a sound count on as a text's do. A new document counts
 * from 0.
 *   index     [length] which token of all those of the row's images each is, from 1 on, 0 = a
 *             text's; above those that v->images images have at most, a sound's
 *   position  [length] in its document; NULL = the row is one document
 *   out       [MX_MROPE_KINDS] of [length]
 * Returns by how much a token behind them stands later than its position says: 0 or less.
 * Source: Qwen2-VL (2024) 2.1; transformers 5.23, models/qwen3_vl and qwen3_omni_moe
 * (get_rope_index). */
int64_t mx_vision_mrope(const MxVision *v, const MxVisionGrid *grids, const int32_t *index,
                        const int32_t *position, int64_t length,
                        int32_t *const out[MX_MROPE_KINDS]);

#endif
