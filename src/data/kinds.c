/* kinds.c — the kinds of records, by MaxText's names: hf is data for Hugging Face's datasets, grain
 * data for Grain, tfds data written by TensorFlow Datasets. They differ in how files are named and
 * in their formats. */
#include "formats.h"
#include "parts.h"
#include "records.h"

/* ---- hf */

/* What is read where nothing is said, then by the format that is said; endings are those of a
 * folder's files, the first that there is. */
static const struct HfFormat {
    const char *name;
    const char *suffixes[5];
    FormatChoice choice;
} hf_formats[] = {
    {.suffixes = {"jsonl", "parquet", "arrow", "json"},
     .choice = {"JSON Lines, Parquet or Arrow",
                (const RecordFormat *const[]){&format_json_lines, &format_json_array,
                                              &format_parquet, &format_arrow},
                4, true}},
    {.name = "json",
     .suffixes = {"jsonl", "json"},
     .choice = {"JSON Lines", (const RecordFormat *const[]){&format_json_lines, &format_json_array},
                2, true}},
    {.name = "text",
     .suffixes = {"txt"},
     .choice = {"lines of text", (const RecordFormat *const[]){&format_text_lines}, 1, true}},
    {.name = "parquet",
     .suffixes = {"parquet"},
     .choice = {"Parquet", (const RecordFormat *const[]){&format_parquet}, 1, false}},
    {.name = "arrow",
     .suffixes = {"arrow"},
     .choice = {"Arrow", (const RecordFormat *const[]){&format_arrow}, 1, true}},
};

/* Without a word, files that end so are text. */
static const struct HfFormat *hf_format(const MxDataConfig *config, const char *path) {
    static const char *const text[] = {".txt", ".txt.gz", ".txt.zst", ".txt.lz4"};
    const char *name = config->format;
    for (int i = 0; i < MX_COUNT(text) && !name; i++)
        if (mx_text_has_suffix(path, text[i])) name = "text";
    for (int i = 1; i < MX_COUNT(hf_formats) && name; i++)
        if (!strcmp(name, hf_formats[i].name)) return &hf_formats[i];
    return &hf_formats[0];
}

static bool hf_parts(MxArena *arena, const MxDataConfig *config, DataParts *out, MxError *err) {
    return data_find_parts(arena, config, hf_format(config, "")->suffixes, out, err);
}

static const FormatChoice *hf_choice(const MxDataConfig *config, const char *path) {
    return &hf_format(config, path)->choice;
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
    .rows = records_rows,
    .score = records_score,
    .mixed = records_mixed,
    .record = records_text,
    .doc = "objects of JSON, rows of Parquet or Arrow, or lines of text: texts, prompts and "
           "completions, pairs of responses, "
           "responses with rewards",
};

/* ---- grain */

static const RecordFormat *const examples[] = {&format_tfrecord, &format_array_record};

/* By grain_file_type; ArrayRecord where nothing is said. */
static const struct {
    const char *name;
    FormatChoice choice;
} grain_formats[] = {
    {"arrayrecord", {"ArrayRecord", &examples[1], 1, false}},
    {"tfrecord", {"TFRecord", &examples[0], 1, true}},
    {"parquet", {"Parquet", (const RecordFormat *const[]){&format_parquet}, 1, false}},
};

static const FormatChoice *grain_choice(const MxDataConfig *config, const char *path) {
    (void)path;
    for (int i = 0; i < MX_COUNT(grain_formats) && config->format; i++)
        if (!strcmp(grain_formats[i].name, config->format)) return &grain_formats[i].choice;
    return &grain_formats[0].choice;
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
    .rows = records_rows,
    .doc = "the same in tf.train.Example, in files of ArrayRecord or TFRecord, or in rows of "
           "Parquet; or a mixture of them",
};

/* ---- tfds */

const FormatChoice *examples_choice(const MxDataConfig *config, const char *path) {
    static const FormatChoice of_both = {"TFRecord or ArrayRecord", examples, MX_COUNT(examples),
                                         true};
    (void)config, (void)path;
    return &of_both;
}

const DataKind data_tfds = {
    .name = "tfds",
    .reads_text = true,
    .parts = parts_of_set,
    .choice = examples_choice,
    .open = records_open,
    .row = records_row,
    .see = records_see,
    .side = records_side,
    .longest = records_longest,
    .rows = records_rows,
    .doc = "a split of a set in a folder of TensorFlow Datasets",
};
