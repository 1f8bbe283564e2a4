/* hf_members.h — config.json: a row for each of its members. Rows are in hf_members.c,
 * hf_windows.c, hf_rope.c, hf_experts.c, hf_blocks.c, hf_own.c, hf_caps.c and hf_compressed.c;
 * hf_config.c walks over them. */
#ifndef CKPT_HF_MEMBERS_H
#define CKPT_HF_MEMBERS_H

#include "internal.h"

#include <mx/family.h>

typedef struct HfReader {
    MxArena *arena;
    const char *path;
    MxJson *json;
    const MxFamily *family;
    const MxHfNames *names;
    MxHfModel *model;
    MxText lacks;
    MxError *err;
} HfReader;

/* The type of a value: int64_t, double, bool. */
typedef enum HfKind { HF_NONE, HF_SIZE, HF_NUMBER, HF_FLAG } HfKind;

/* One member of config.json, or one value that others tell (theirs NULL). What has no function is
 * done by the kind: the member is read as it stands and written, the key `ours` is. */
typedef struct HfMember HfMember;
struct HfMember {
    const char *theirs, *ours;
    const char *what; /* for messages, if not `theirs` */
    /* Which models have it: families with such a block (MX_BLOCK_NONE = all), those of which
     * MxHfNames says so at `flag` and does not at `unless` (0 = nowhere). */
    MxBlockKind block;
    size_t flag, unless;
    HfKind kind;
    size_t at, from;       /* of the value in MxHfModel and in MxConfig */
    int64_t most, missing; /* of a size; missing 0 = it must be there */
    double usual;          /* a number's where it is missing */
    size_t of_family;      /* where MxHfNames says what counts instead of these two; 0 = nowhere */
    bool shapes;           /* shapes depend on it */
    bool agrees;           /* no shape tells it, but a run of ours must have the same */
    void (*read)(HfReader *r, const HfMember *m);
    void (*take)(const MxConfig *config, MxHfModel *model);
    void (*write)(const MxHfModel *model, const MxHfNames *names, MxJson *out);
    void (*yaml)(const MxHfModel *model, MxText *out);
    bool (*check)(const MxHfModel *model, const MxHfNames *names, MxWhere where, MxError *err);
    /* That there is a member for it; a family that Hugging Face has not is told elsewhere. */
    bool (*fits)(const MxConfig *config, const MxHfNames *names, MxError *err);
};

/* Rows of a table; the last one is empty. */
#define HF_OF(field) offsetof(MxHfNames, field)
#define HF_SIZE_OF(field, config)                                                                  \
    .kind = HF_SIZE, .at = offsetof(MxHfModel, field), .from = offsetof(MxConfig, config)
#define HF_NUMBER_OF(field, config)                                                                \
    .kind = HF_NUMBER, .at = offsetof(MxHfModel, field), .from = offsetof(MxConfig, config)
#define HF_FLAG_OF(field, config)                                                                  \
    .kind = HF_FLAG, .at = offsetof(MxHfModel, field), .from = offsetof(MxConfig, config)
/* hf_read_encoder — the encoder of images in config.json of the model around a text model; none if
 * it is not available here, so that the text model alone is taken. hf_yaml_encoder — its keys. */
void hf_read_encoder(HfReader *r, const MxJson *outer);
void hf_yaml_encoder(const MxHfModel *model, MxText *out);
/* hf_read_audio, hf_yaml_audio — the same of the encoder of sounds beside it. */
void hf_read_audio(HfReader *r, const MxJson *outer);
void hf_yaml_audio(const MxHfModel *model, MxText *out);
extern const HfMember hf_members[], hf_cap_members[], hf_window_members[], hf_rope_members[],
    hf_expert_members[], hf_layer_members[], hf_own_members[], hf_block_members[],
    hf_compressed_members[];
/* hf_next_member — of all tables in turn, those that a model type has, from NULL on; NULL = there
 * are no more. */
const HfMember *hf_next_member(const HfMember *m, const MxHfNames *names);

/* For functions of rows. hf_get — NULL if it is missing or null. hf_flag — whether it says
 * something. hf_refuse — it stands for other parameters. hf_lack — mxtrain does not do it.
 * hf_read_size, hf_read_number — missing: what counts where it is missing or null; of a size 0, of
 * a number NAN = it must be there. hf_missing — that of a member of the kind HF_SIZE. hf_must_be —
 * that a key of ours is as all their models have it. */
MxJson *hf_get(const MxJson *object, const char *key);
bool hf_flag(const HfReader *r, const char *key);
bool hf_refuse(const HfReader *r, const char *member, const char *what);
void hf_lack(HfReader *r, const char *member, const MxJson *found);
void hf_read_size(const HfReader *r, const char *key, int64_t most, int64_t missing, int64_t *out);
void hf_read_number(const HfReader *r, const MxJson *object, const char *key, double missing,
                    double *out);
int64_t hf_missing(const HfReader *r, const HfMember *m);
bool hf_must_be(const MxConfig *c, MxKey key, bool is_so, const char *wanted, MxError *err);

enum { HF_LARGEST_SIZE = 1 << 24 };
#define HF_FEW_BITS "quantization_config" /* that says how numbers are stored */

/* hf_read_yarn — yarn's members of an object. hf_yaml_yarn — its keys, where a model has it. */
void hf_read_yarn(HfReader *r, const MxJson *rope);
void hf_write_yarn(const MxHfModel *model, MxJson *rope);
void hf_yaml_yarn(const MxHfModel *model, MxText *t);
/* hf_read_theta — a whole number of ours; missing  what counts where it is missing. */
void hf_read_theta(HfReader *r, const MxJson *object, const char *key, double missing,
                   int64_t *out);
/* hf_rope_said — of rotations: as transformers, rope_scaling before rope_parameters, if either says
 * something, else what the family's models have then, or NULL; name  for messages. */
const MxJson *hf_rope_said(const HfReader *r, const char **name);
/* hf_rope_kind — "default" where an object names none; NULL = it is no word. */
const char *hf_rope_kind(const MxJson *rope);

/* hf_read_member — errors: it is missing or no such value; it stands for other parameters. */
void hf_read_member(HfReader *r, const HfMember *m);

#endif
