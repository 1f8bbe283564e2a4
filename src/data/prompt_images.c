/* prompt_images.c — the images and sounds of prompts, with the code for records of datasets
 * (images.c). */
#include <mx/data_images.h>

#include "images.h"

struct MxSeer {
    MxArena *arena;
    MxDataConfig config;
    Seer blind, *open; /* before and after the first image */
};

struct MxPictures {
    Pictures own;
    MxWhere where;
};

MxSeer *mx_seer_new(MxArena *arena, MxSeerHow how) {
    MxSeer *seer = mx_new(arena, MxSeer);
    *seer = (MxSeer){.arena = arena,
                     .config = {.tokenizer = how.tokenizer,
                                .tokenizer_dir = how.tokenizer_dir,
                                .images = {.vision = how.vision,
                                           .hearing = how.hearing,
                                           .columns = {"image", "images"},
                                           .n_columns = 2,
                                           .only_data = how.only_data}}};
    seer->config.images.vision.images = INT32_MAX; /* what a sequence has room for is told later */
    seer->blind = (Seer){.form = &seer->config.images,
                         .vision = seer->config.images.vision,
                         .hearing = how.hearing,
                         .sound_token = -1};
    return seer;
}

static bool open(MxSeer *seer, MxWhere where, MxError *err) {
    MxDataConfig *config = &seer->config;
    config->where = where;
    if (!config->images.vision.encoder)
        return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                       "found an image, wanted text alone: no encoder of images is at work here");
    if (!config->tokenizer)
        return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                       "found an image, but the model has no tokenizer to tell it with");
    return seer->open || seer_open(seer->arena, config, &seer->open, err);
}

/* Sounds that the record names itself: members with a name, an object with one, or a list. */
static bool find_sounds(MxArena *arena, const MxSeer *seer, const MxJson *record, MxWhere where,
                        Pictures *out, MxError *err) {
    static const char *const members[] = {"audio", "audios"};
    for (int i = 0; i < MX_COUNT(members); i++) {
        const MxJson *value = mx_json_get(record, members[i]);
        const char *kind = value ? mx_json_kind(value) : "null";
        if (!strcmp(kind, "null")) continue;
        bool is_list = !strcmp(kind, "a list");
        for (size_t k = 0; k < (is_list ? mx_json_length(value) : 1); k++)
            if (!sounds_add(arena, &seer->blind, is_list ? mx_json_at(value, k) : value, where, out,
                            err))
                return false;
    }
    return true;
}

bool mx_seer_find(MxArena *arena, MxSeer *seer, const MxJson *record, MxWhere where,
                  MxPictures **out, MxError *err) {
    Pictures found;
    const Fields fields = fields_of_json(record);
    const MxJson *messages = mx_json_get(record, "messages");
    bool has_messages = messages && message_list_shows(messages);
    *out = NULL;
    if (!pictures_of(arena, &seer->blind, &fields, &messages, has_messages, 0, where, &found, err))
        return false;
    if (!has_messages && !find_sounds(arena, seer, record, where, &found, err)) return false;
    if (!found.n && !found.sounds.n) return true;
    if (!open(seer, where, err) || !pictures_look(arena, seer->open, &found, where, err))
        return false;
    *out = mx_new(arena, MxPictures);
    **out = (MxPictures){found, where};
    return true;
}

void mx_seer_tell(MxArena *arena, const MxSeer *seer, MxPictures *pictures, bool puts_first,
                  MxRendered *text) {
    if (!pictures) return;
    int n_missing = pictures->own.n - pictures_marked(seer->open, text->text, text->n);
    int n_quiet = pictures->own.sounds.n - sounds_marked(seer->open, text->text, text->n);
    pictures->own.n_places = pictures->own.sounds.n_places = 0;
    pictures_tell(arena, seer->open, &pictures->own, puts_first && n_missing > 0 ? n_missing : 0,
                  puts_first && n_quiet > 0 ? n_quiet : 0, text);
}

bool mx_seer_index(MxArena *arena, const MxSeer *seer, const MxPictures *pictures, MxTokens tokens,
                   MxWhere where, const int32_t **index, MxError *err) {
    *index = NULL;
    if (!pictures) return true;
    int32_t *rows = mx_new_n(arena, int32_t, tokens.n + 1);
    int64_t n = 0;
    seer_index(seer->open, &pictures->own, tokens.ids, tokens.n,
               pictures_views(seer->open, &pictures->own) * seer->open->vision.tokens, rows);
    for (int64_t i = 0; i < tokens.n; i++) n += seer_reads(seer->open, tokens.ids[i]);
    *index = rows;
    return pictures_check(seer->open, &pictures->own, n, where, err);
}

bool mx_seer_read(MxArena *arena, const MxSeer *seer, const MxPictures *pictures, MxViews *out,
                  MxError *err) {
    const Seer *s = seer->open;
    MxVision one = s->vision;
    int64_t most = mx_vision_views(&one) * mx_vision_pixels(&one) * one.channels;
    one.images = one.tiles = 1;
    const MxHearing *h = &s->hearing;
    *out = (MxViews){.n = pictures_views(s, &pictures->own),
                     .chunks = sounds_chunks(s, &pictures->own)};
    DataSeen to = {.pixels = mx_new_n(arena, float, out->n *mx_vision_row(&one) + 1)};
    if (out->chunks) {
        out->frames = to.frames = mx_new_n(arena, float, out->chunks * h->frames * h->bins);
        out->left = to.left = mx_new_n(arena, int32_t, out->chunks);
        to.samples = mx_new_n(arena, float, sounds_most(h));
    }
    if (mx_vision_grids(&one)) to.grids = mx_new_n(arena, MxVisionGrid, out->n);
    out->pixels = to.pixels;
    out->grids = to.grids;
    return seer_views(s, &pictures->own, pictures->where, mx_new_n(arena, uint8_t, most), &to, err);
}
