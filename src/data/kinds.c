/* kinds.c — the kinds of records, by MaxText's names: hf is what Hugging Face's datasets would
 * read, grain what Grain would, tfds what TensorFlow Datasets has written. They differ in how files
 * are named and in the formats of these. */
#include "formats.h"
#include "parts.h"
#include "records.h"

static bool is_format(const MxDataConfig *config, const char *name) {
    return config->format && !strcmp(config->format, name);
}

/* ---- hf */

static bool hf_reads_text(const MxDataConfig *config, const char *path) {
    static const char *const text[] = {".txt", ".txt.gz", ".txt.zst"};
    bool is_text = is_format(config, "text");
    for (int i = 0; i < MX_COUNT(text) && !config->format; i++)
        is_text |= mx_text_has_suffix(path, text[i]);
    return is_text;
}

/* Files that must be converted are found too, to say how. */
static bool hf_parts(MxArena *arena, const MxDataConfig *config, DataParts *out, MxError *err) {
    static const char *const json[] = {"jsonl", "parquet", "arrow", "json", NULL};
    static const char *const text[] = {"txt", NULL};
    return data_find_parts(arena, config, hf_reads_text(config, "") ? text : json, out, err);
}

static const FormatChoice *hf_choice(const MxDataConfig *config, const char *path) {
    static const RecordFormat *const json[] = {&format_json_lines, &format_json_array};
    static const RecordFormat *const text[] = {&format_text_lines};
    static const FormatChoice of_json = {"JSON Lines", json, MX_COUNT(json), true};
    static const FormatChoice of_text = {"lines of text", text, MX_COUNT(text), true};
    return hf_reads_text(config, path) ? &of_text : &of_json;
}

const DataKind data_hf = {
    .name = "hf",
    .reads_text = true,
    .parts = hf_parts,
    .choice = hf_choice,
    .open = records_open,
    .row = records_row,
    .see = records_see,
    .side = records_side,
    .longest = records_longest,
    .score = records_score,
    .mixed = records_mixed,
    .record = records_text,
    .doc = "objects of JSON or lines of text: texts, prompts and completions, pairs of responses, "
           "responses with rewards",
};

/* ---- grain */

static const RecordFormat *const examples[] = {&format_tfrecord, &format_array_record};

static const FormatChoice *grain_choice(const MxDataConfig *config, const char *path) {
    static const FormatChoice of_tfrecord = {"TFRecord", &examples[0], 1, true};
    static const FormatChoice of_array_record = {"ArrayRecord", &examples[1], 1, false};
    (void)path;
    return is_format(config, "tfrecord") ? &of_tfrecord : &of_array_record;
}

const DataKind data_grain = {
    .name = "grain",
    .reads_text = true,
    .parts = parts_of_mixture,
    .choice = grain_choice,
    .open = records_open,
    .row = records_row,
    .see = records_see,
    .side = records_side,
    .longest = records_longest,
    .doc =
        "the same in tf.train.Example, in files of ArrayRecord or TFRecord, or a mixture of them",
};

/* ---- tfds */

static const FormatChoice *tfds_choice(const MxDataConfig *config, const char *path) {
    static const FormatChoice of_both = {"TFRecord or ArrayRecord", examples, MX_COUNT(examples),
                                         true};
    (void)config, (void)path;
    return &of_both;
}

const DataKind data_tfds = {
    .name = "tfds",
    .reads_text = true,
    .parts = parts_of_set,
    .choice = tfds_choice,
    .open = records_open,
    .row = records_row,
    .see = records_see,
    .side = records_side,
    .longest = records_longest,
    .doc = "a split of a set in a folder of TensorFlow Datasets",
};
