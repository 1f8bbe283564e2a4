/* test_tables.c — files of Parquet and Arrow that pyarrow wrote (fixtures/make_tables.py): every
 * value of every row is what pyarrow's own reader makes of it; what is not read, damaged or hostile
 * is refused with its place. */
#include "data/codec.h"
#include "data/formats.h"
#include "data_test.h"

#include <stdio.h>

#define FIXTURES "tests/data/fixtures/"

static const RecordFormat *const formats[] = {&format_json_lines, &format_parquet, &format_arrow};
static const FormatChoice all = {"tables", formats, MX_COUNT(formats), true};

static MxDataConfig table_config(const char *path) {
    MxDataConfig config = text_config(path);
    config.kind = "hf";
    config.rows = 1;
    config.length = 48;
    config.packing = false;
    return config;
}

static const char *fixture(const char *name) {
    return mx_arena_printf(&arena, FIXTURES "%s", name);
}

static const char *put_bytes(const char *name, MxBytes bytes, size_t n) {
    char *path = in_folder(name);
    FILE *file = fopen(path, "wb");
    ck_assert_uint_eq(fwrite(bytes.data, 1, n, file), n);
    ck_assert_int_eq(fclose(file), 0);
    return path;
}

/* ---- values */

/* Reals of 32 bits are told in fewer digits in one. */
static bool is_equal(const MxJson *a, const MxJson *b) {
    double x, y;
    const char *key;
    MxJson *value;
    int64_t whole;
    if (mx_json_number(a, &x) && mx_json_number(b, &y))
        return x == y && mx_json_int(a, &whole) == mx_json_int(b, &whole);
    if (strcmp(mx_json_kind(a), mx_json_kind(b))) return false;
    bool is_list = !strcmp(mx_json_kind(a), "a list");
    if (!is_list && strcmp(mx_json_kind(a), "an object"))
        return !strcmp(mx_json_dump(&arena, a, false), mx_json_dump(&arena, b, false));
    if (mx_json_length(a) != mx_json_length(b)) return false;
    for (size_t i = 0; is_list && i < mx_json_length(a); i++)
        if (!is_equal(mx_json_at(a, i), mx_json_at(b, i))) return false;
    for (void *at = NULL; !is_list && mx_json_next(a, &at, &key, &value);)
        if (!mx_json_get(b, key) || !is_equal(value, mx_json_get(b, key))) return false;
    return true;
}

static const MxJson *next_row(RecordFile *file) {
    const char *bytes;
    size_t n;
    if (!file->format->next(file, &bytes, &n, &err)) return NULL;
    const MxJson *row = mx_json_parse_line(&arena, bytes, n, MX_NOWHERE, &err);
    ck_assert_msg(row != NULL, "%s: %.*s", err.count ? err.text.data : "", (int)n, bytes);
    return row;
}

static const struct {
    const char *path, *like;
    int n_rows;
} tables[] = {
    {"types.parquet", "tables_types.jsonl.zst", 300},
    {"types_2.parquet", "tables_types.jsonl.zst", 300},
    {"types_delta_1.parquet", "tables_types.jsonl.zst", 300},
    {"types_delta_2.parquet", "tables_types.jsonl.zst", 300},
    {"types.arrow", "tables_types.jsonl.zst", 300},
    {"types_numbered.arrow", "tables_numbered.jsonl.zst", 300},
    {"types_numbered_stream.arrow", "tables_numbered.jsonl.zst", 300},
    {"types_names.parquet", "tables_names.jsonl.zst", 300},
    {"talks.parquet", "talks.jsonl", 8},
    {"talks.arrow", "talks.jsonl", 8},
    {"texts.parquet", "texts.jsonl", 6},
    {"texts_plain_2.parquet", "texts.jsonl", 6},
    {"texts_gzip.parquet", "texts.jsonl", 6},
    {"texts_none.parquet", "texts.jsonl", 6},
    {"texts_brotli_2.parquet", "texts.jsonl", 6},
    {"texts_lz4.parquet", "texts.jsonl", 6},
    {"texts_delta.parquet", "texts.jsonl", 6},
    {"texts.arrow", "texts.jsonl", 6},
    {"texts_lz4.arrow", "texts.jsonl", 6},
    {"texts_dictionary.arrow", "texts.jsonl", 6},
    {"texts_file.arrow", "texts.jsonl", 6},
    {"texts_zstd.arrow", "texts.jsonl", 6},
    {"texts_large.arrow", "texts.jsonl", 6},
    {"texts_view.arrow", "texts.jsonl", 6},
};

START_TEST(every_value) {
    RecordFile a, b;
    ck_assert_msg(record_file_open(&arena, fixture(tables[_i].path), &all, &a, &err), "%s",
                  err.count ? err.text.data : "");
    ck_assert(record_file_open(&arena, fixture(tables[_i].like), &all, &b, &err));
    for (int i = 0; i < tables[_i].n_rows; i++) {
        const MxJson *row = next_row(&a), *like = next_row(&b);
        ck_assert_msg(row != NULL, "row %d: %s", i, err.count ? err.text.data : "is missing");
        ck_assert_msg(is_equal(row, like), "row %d:\n%s\n%s", i, mx_json_dump(&arena, row, false),
                      mx_json_dump(&arena, like, false));
    }
    ck_assert(!next_row(&a) && !next_row(&b));
    ck_assert_msg(!err.count, "%s", err.count ? err.text.data : "");
    MxBytes bytes; /* what a checkpoint remembers is all of the file */
    MxDataFile file = stream_file(&a.stream);
    ck_assert(mx_file_read(&arena, fixture(tables[_i].path), 1 << 20, &bytes, &err));
    ck_assert_uint_eq(file.hash, mx_hash64(bytes.data, bytes.size));
}
END_TEST

/* ---- training data */

/* Conversations, of one file and of a folder, found out and by name. */
START_TEST(conversations) {
    static const char *const paths[][2] = {{"talks.parquet", NULL},
                                           {"talks.parquet", "parquet"},
                                           {"talks.arrow", NULL},
                                           {"talks.arrow", "arrow"}};
    for (int i = 0; i < MX_COUNT(paths); i++) {
        MxDataConfig config = table_config(fixture(paths[i][0]));
        MxDataGuess guess;
        config.format = paths[i][1];
        config.length = 400;
        config.is_sft = config.completion_only = true;
        config.chat.named = "chatml";
        MxDataConfig like = config;
        like.path = fixture("talks.jsonl");
        like.format = NULL;
        ck_same_rows(config, like);
        if (paths[i][1] && !strcmp(paths[i][1], "parquet")) config.kind = "grain";
        ck_same_rows(config, like);
        ck_assert(mx_data_guess(&arena, config.path, false, MX_NOWHERE, &guess, &err));
        ck_assert(guess.is_sft && !guess.is_pair);
        ck_assert_str_eq(guess.kind, "hf");
        ck_assert_str_eq(guess.columns, "messages");
    }
}
END_TEST

START_TEST(folders) {
    MxBytes bytes;
    ck_assert(mx_file_read(&arena, fixture("texts.arrow"), 1 << 20, &bytes, &err));
    put_bytes("data-00000-of-00001.arrow", bytes, bytes.size);
    put("state.json", "{}"); /* as datasets.save_to_disk has them */
    put("dataset_info.json", "{}");
    ck_same_rows(table_config(folder), table_config(fixture("texts.jsonl")));
}
END_TEST

/* ---- refusals */

static const struct {
    const char *path, *format, *words;
} refused[] = {
    {"texts.jsonl", "parquet", "texts.jsonl: is no Parquet: it does not begin as such files do"},
    {"texts.arrow", "parquet", "texts.arrow: is Arrow, wanted Parquet"},
    {"texts.parquet", "json", "texts.parquet: is Parquet, wanted JSON Lines"},
    {"types_names.parquet", NULL,
     "types_names.parquet: record 1: found \"lists\", \"calls\"; wanted \"text\""},
};

START_TEST(refuses) {
    MxDataConfig config = table_config(fixture(refused[_i].path));
    config.format = refused[_i].format;
    ck_refused(config, refused[_i].words);
}
END_TEST

/* A column of bytes, of a column's own name. */
START_TEST(other_columns) {
    static const char *const names[] = {"bytes", "five", "list", "none", "f64"};
    static const char *const words[] = {
        "record 1: column \"bytes\" holds bytes that are not UTF-8 (0xff at byte 0), wanted a text",
        "record 1: column \"five\" holds 5 bytes that are no text, wanted a text",
        "record 1: column \"list\" holds a list, wanted a text",
        "no record has all of the columns \"none\"; the first has \"i8\"",
        "record 1: column \"f64\" holds a number, wanted a text"};
    static const char *const paths[] = {"types.parquet", "types_2.parquet", "types.arrow"};
    for (int i = 0; i < MX_COUNT(names) * MX_COUNT(paths); i++) {
        MxDataConfig config = table_config(fixture(paths[i / MX_COUNT(names)]));
        config.columns = &names[i % MX_COUNT(names)];
        config.n_columns = 1;
        ck_refused(config, words[i % MX_COUNT(names)]);
    }
}
END_TEST

static bool reads(const char *path) {
    MxDataset *dataset;
    MxDataConfig config = table_config(path);
    bool ok = mx_data_open(&arena, &config, &dataset, &err);
    if (!ok) ck_assert_msg(err.exit == MX_EXIT_BAD_INPUT, "%s", err.text.data);
    if (!ok) ck_assert_ptr_nonnull(strstr(err.text.data, "damaged"));
    mx_error_release(&err);
    return ok;
}

/* A file that was cut is never taken for a shorter one, but for a stream between two messages. */
START_TEST(cut) {
    MxBytes bytes;
    int n_whole = 0;
    ck_assert(mx_file_read(&arena, fixture(tables[_i].path), 1 << 20, &bytes, &err));
    for (size_t n = 8; n < bytes.size; n += 1 + bytes.size / 60)
        n_whole += reads(put_bytes("damaged", bytes, n));
    ck_assert_int_le(n_whole, strstr(tables[_i].path, ".arrow") ? 6 : 0);
}
END_TEST

/* Whatever a byte becomes, the file is read or refused. */
START_TEST(changed) {
    MxBytes bytes;
    ck_assert(mx_file_read(&arena, fixture(tables[_i].path), 1 << 20, &bytes, &err));
    for (size_t i = 4; i < bytes.size; i += 1 + bytes.size / 40)
        for (int way = 0; way < 2; way++) {
            uint8_t was = bytes.data[i];
            bytes.data[i] = (uint8_t)(way ? 0xff : was ^ 1 << i % 8);
            reads(put_bytes("damaged", bytes, bytes.size));
            bytes.data[i] = was;
        }
}
END_TEST

/* A footer of any size, of columns that no file has. */
START_TEST(hostile_footers) {
    static const struct {
        const char *bytes;
        size_t n;
        const char *words;
    } files[] = {
#define FILE_OF(bytes) bytes, sizeof bytes - 1
        {FILE_OF("PAR1\xff\xff\xff\x7fPAR1"), "its footer is said to have 2147483647 bytes"},
        {FILE_OF("PAR1\0\1\0\0\0PAR1"), "its footer, at byte 4: it tells no columns"},
        {FILE_OF("PAR1\x29\xfc\xff\xff\xff\xff\x0f\7\0\0\0PAR1"),
         "its footer, at byte 4: it is damaged"},
        {FILE_OF("PAR1xxxxxxxxPARE"),
         "does not end as such files do, with \"PAR1\"\nhint: it was cut"},
    };
    for (int i = 0; i < MX_COUNT(files); i++) {
        const MxBytes bytes = {(uint8_t *)(uintptr_t)files[i].bytes, files[i].n};
        ck_refused(table_config(put_bytes("a.parquet", bytes, bytes.size)), files[i].words);
    }
}
END_TEST

/* Two blocks, each behind its sizes, as Hadoop writes them; and the second alone. */
START_TEST(blocks_of_hadoop) {
    static const char text[] = "the moon has no air, the moon has no air, the moon",
                      packed[] = "\0\0\0\036\0\0\0\040\360\017the moon has no air, the moon "
                                 "\0\0\0\024\0\0\0\026\360\005has no air, the moon";
    enum { WHOLE = sizeof packed - 1, SECOND = 22, PACKED_SECOND = 20 };
    char out[sizeof text] = "";
    const uint8_t *in = (const uint8_t *)packed;
    ck_assert(codec_lz4_hadoop.unpack(in, WHOLE, (uint8_t *)out, sizeof text - 1));
    ck_assert_str_eq(out, text);
    memset(out, 0, sizeof out);
    in += WHOLE - SECOND;
    ck_assert(codec_lz4_hadoop.unpack(in, SECOND, (uint8_t *)out, PACKED_SECOND));
    ck_assert_str_eq(out, text + sizeof text - 1 - PACKED_SECOND);
    ck_assert(!codec_lz4_hadoop.unpack(in, SECOND - 1, (uint8_t *)out, PACKED_SECOND));
}
END_TEST

Suite *tables_suite(void) {
    Suite *suite = suite_create("data: tables");
    TCase *tests = tcase_create("tables");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_loop_test(tests, every_value, 0, MX_COUNT(tables));
    tcase_add_test(tests, blocks_of_hadoop);
    tcase_add_test(tests, conversations);
    tcase_add_test(tests, folders);
    tcase_add_loop_test(tests, refuses, 0, MX_COUNT(refused));
    tcase_add_test(tests, other_columns);
    tcase_add_loop_test(tests, cut, 0, MX_COUNT(tables));
    tcase_add_loop_test(tests, changed, 0, MX_COUNT(tables));
    tcase_add_test(tests, hostile_footers);
    tcase_set_timeout(tests, 60);
    suite_add_tcase(suite, tests);
    return suite;
}
