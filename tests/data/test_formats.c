/* test_formats.c — files of records in every format: those that the real libraries wrote
 * (fixtures/make.py) give the same rows as JSON Lines; damaged ones are refused, with file and
 * place. */
#include "data_test.h"

#include <stdio.h>
#include <zlib.h>

#define FIXTURES "tests/data/fixtures/"

static MxDataConfig file_config(const char *kind, const char *format, const char *path) {
    MxDataConfig config = text_config(path);
    config.kind = kind;
    config.format = format;
    config.rows = 1;
    config.length = 48;
    config.packing = false;
    return config;
}

/* ---- the same texts in every format */

static const struct {
    const char *kind, *format, *path, *like;
} same[] = {
    {"hf", NULL, "texts.jsonl.gz", "texts.jsonl"},
    {"hf", NULL, "texts.jsonl.zst", "texts.jsonl"},
    {"hf", NULL, "texts.jsonl.lz4", "texts.jsonl"},
    {"hf", "json", "texts.json", "texts.jsonl"},
    {"grain", "tfrecord", "texts.tfrecord", "texts.jsonl"},
    {"grain", "tfrecord", "texts.tfrecord.gz", "texts.jsonl"},
    {"grain", "arrayrecord", "texts.array_record", "texts.jsonl"},
    {"grain", "arrayrecord", "texts_grouped.array_record", "texts.jsonl"},
    {"grain", "arrayrecord", "texts_plain.array_record", "texts.jsonl"},
    {"grain", "parquet", "texts.parquet", "texts.jsonl"},
    {"grain", "arrayrecord", "long.array_record", "long.jsonl.zst"},
};

START_TEST(formats_hold_the_same) {
    const char *path = mx_arena_printf(&arena, FIXTURES "%s", same[_i].path);
    const char *like = mx_arena_printf(&arena, FIXTURES "%s", same[_i].like);
    MxDataConfig config = file_config(same[_i].kind, same[_i].format, path);
    MxDataset *dataset = open_data(config);
    ck_same_rows(config, file_config("hf", "json", like));
    ck_assert(mx_data_find(&config, &err));
    int n;
    MxDataFile file = mx_data_files(dataset, &n)[0];
    MxBytes bytes; /* a checkpoint remembers the file as it is, packed or not */
    ck_assert(mx_file_read(&arena, path, 1 << 20, &bytes, &err));
    ck_assert_uint_eq((size_t)file.bytes, bytes.size);
    ck_assert_uint_eq(file.hash, mx_hash64(bytes.data, bytes.size));
}
END_TEST

static const char *put_bytes(const char *name, const void *bytes, size_t n) {
    char *path = in_folder(name);
    FILE *file = fopen(path, "wb");
    ck_assert_uint_eq(fwrite(bytes, 1, n, file), n);
    ck_assert_int_eq(fclose(file), 0);
    return path;
}

/* A line is a document; blank ones are none. */
START_TEST(lines_of_text) {
    const char *lines = "\xef\xbb\xbf"
                        "first\r\n\n{\"text\": 1}\n[second]\nlast";
    const char *json = put("b.jsonl", "{\"text\": \"first\"}\n{\"text\": \"{\\\"text\\\": 1}\"}\n"
                                      "{\"text\": \"[second]\"}\n{\"text\": \"last\"}\n");
    MxDataConfig like = file_config("hf", NULL, json);
    ck_same_rows(file_config("hf", NULL, put("a.txt", lines)), like);
    ck_same_rows(file_config("hf", "text", put("a.data", lines)), like);
    ck_refused(file_config("hf", NULL, put("bad.txt", "a\nb\xff\n")),
               "bad.txt:2:2: is not UTF-8: byte 0xff");
}
END_TEST

/* A whole file is a document, packed or not. */
START_TEST(packed_text) {
    MxBytes bytes;
    const char *path = FIXTURES "texts.jsonl";
    ck_assert(mx_file_read(&arena, path, 1 << 20, &bytes, &err));
    ck_same_rows(file_config("text", NULL, FIXTURES "texts.jsonl.zst"),
                 file_config("text", NULL, path));
}
END_TEST

/* ---- lists in JSON */

static const struct {
    const char *text, *words;
} lists[] = {
    {"[]", "no records in "},
    {"[{\"text\": \"a\"},\n", "a.json:2:1: the file ends inside the list"},
    {"[{\"text\": \"a\"}", "a.json:1:15: the file ends inside the list"},
    {"[{\"text\": \"a\"},]", "a.json:1:16: wanted a record"},
    {"[{\"text\": \"a\"}\n {\"text\": \"b\"}]",
     "a.json:2:2: wanted a comma or the end of the list"},
    {"[{\"text\": \"a\"}] 5", "a.json:1:17: found more behind the end of the list"},
    {"[\n {\"text\": \"a\"},\n 5, {\"text\": \"b\"}]", "a.json:3:2: found \"5\", wanted an object"},
    {"[\n {\"text\":\n  \"a\",,}]", "a.json:3:7: not valid JSON"},
    {" [ {\"text\" \"a\"}]", "a.json:1:14: not valid JSON"},
    {"[{\"text\": \"a", "a.json:1:2: the file ends inside this record"},
    {"[{\"text\": 7}, {\"text\": \"b\"}]", "a.json:1:2: column \"text\" holds a number"},
};

START_TEST(refuses_lists) {
    ck_refused(file_config("hf", "json", put("a.json", lists[_i].text)), lists[_i].words);
}
END_TEST

/* Records that begin and end anywhere in what is read at a time. */
START_TEST(long_lists) {
    MxText list, lines;
    mx_text_init(&list, &arena);
    mx_text_init(&lines, &arena);
    for (int i = 0; i < 400; i++) {
        const char *text = mx_arena_printf(&arena, "{\"text\": \"%0*d, [\\\"{\"}", 1 + i * 3, i);
        mx_text_add(&list, "%s%s", i ? ",\n" : "[", text);
        mx_text_add(&lines, "%s\n", text);
    }
    mx_text_add(&list, "\n]\n");
    MxDataConfig a = file_config("hf", NULL, put("a.json", list.data));
    MxDataConfig b = file_config("hf", NULL, put("b.jsonl", lines.data));
    a.length = b.length = 1300;
    ck_same_rows(a, b);
}
END_TEST

/* ---- damaged files */

/* A packed file that ends anywhere is refused, not taken for a shorter one. */
START_TEST(cut_files) {
    const char *path = mx_arena_printf(&arena, FIXTURES "%s", same[_i].path), *name = "a.json";
    MxBytes bytes;
    MxDataset *dataset;
    ck_assert(mx_file_read(&arena, path, 1 << 20, &bytes, &err));
    size_t end = bytes.size;
    while (end && !bytes.data[end - 1]) end--; /* zeros may pad */
    int n_whole = 0;                           /* TFRecord does not tell where it ends */
    for (size_t n = 16; n < end; n += 1 + end / 2000) {
        MxDataConfig config =
            file_config(same[_i].kind, same[_i].format, put_bytes(name, bytes.data, n));
        bool ok = mx_data_open(&arena, &config, &dataset, &err);
        n_whole += ok; /* between members of the file */
        if (!ok) ck_assert_int_eq(err.exit, MX_EXIT_BAD_INPUT);
        mx_error_release(&err);
    }
    ck_assert_int_le(n_whole, 5);
}
END_TEST

START_TEST(garbage_behind) {
    MxBytes bytes;
    ck_assert(mx_file_read(&arena, FIXTURES "texts.jsonl.gz", 1 << 20, &bytes, &err));
    bytes.data[bytes.size - 1] = 'x';
    ck_refused(file_config("hf", NULL, put_bytes("a", bytes.data, bytes.size)),
               "/a: could not unpack gzip, at byte ");
    bytes.data[40] ^= 0x10;
    ck_refused(file_config("hf", NULL, put_bytes("a", bytes.data, bytes.size)),
               "/a: could not unpack gzip, at byte ");
}
END_TEST

/* More than a GiB of blanks, in two MiB. */
START_TEST(bomb) {
    enum { PIECE = 16 << 20, PIECES = 100 };
    char *blank = mx_arena_alloc(&arena, PIECE);
    const char *path = in_folder("bomb.gz");
    MxBytes member;
    memset(blank, ' ', PIECE);
    blank[PIECE - 1] = '\n';
    gzFile out = gzopen(path, "wb");
    ck_assert_int_eq(gzwrite(out, blank, PIECE), PIECE);
    ck_assert_int_eq(gzclose(out), Z_OK);
    ck_assert(mx_file_read(&arena, path, PIECE, &member, &err));
    FILE *file = fopen(path, "wb");
    for (int i = 0; i < PIECES; i++)
        ck_assert_uint_eq(fwrite(member.data, 1, member.size, file), member.size);
    ck_assert_int_eq(fclose(file), 0);
    ck_refused(file_config("hf", NULL, path), "over 200 times as many\nhint: unpack it first");
}
END_TEST

/* ---- records of TFRecord */

static void put_le(MxText *out, uint64_t value, size_t n) {
    for (size_t i = 0; i < n; i++) {
        char byte = (char)(value >> 8 * i);
        mx_text_addn(out, &byte, 1);
    }
}

/* A record that says it has `says` bytes. */
static void put_record(MxText *out, const char *bytes, size_t n, uint64_t says) {
    uint8_t length[8];
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)(says >> 8 * i);
    put_le(out, says, 8);
    put_le(out, mx_crc32c_masked(length, 8), 4);
    mx_text_addn(out, bytes, n);
    put_le(out, mx_crc32c_masked(bytes, n), 4);
}

/* What a record holds, as bytes of a message. */
#define BYTES(text) text, sizeof text - 1
static const char example[] = "\x0a\x0f\x0a\x0d\x0a\x04text\x12\x05\x0a\x03\x0a\x01z";

static const struct {
    const char *bytes;
    size_t n;
    const char *words;
} bad_examples[] = {
    {BYTES(""), "record 2: has no features, wanted a tf.train.Example with its texts in features"},
    {BYTES("{\"text\": \"a\"}"), "record 2: is no tf.train.Example, or damaged"},
    {BYTES("\x0a\x0f\x0a\x0d\x0a\x04text\x12\x05\x0a\x03\x0a\x02z"),
     "record 2: is no tf.train.Example"},
    {BYTES("\x0a\x0f\x0a\x0d\x0a\x04text\x12\x05\x0a\x03\x0a\x01\xff"),
     "record 2: column \"text\" holds bytes that are not UTF-8 (0xff at byte 0), wanted a text"},
    {BYTES("\x0a\x12\x0a\x10\x0a\x04text\x12\x08\x0a\x06\x0a\x01y\x0a\x01z"),
     "record 2: column \"text\" holds a list of texts, wanted a text"},
    {BYTES("\x0a\x0f\x0a\x0d\x0a\x04text\x12\x05\x1a\x03\x0a\x01\x05"),
     "record 2: column \"text\" holds a list of numbers, wanted a text"},
};

START_TEST(refuses_examples) {
    MxText file;
    mx_text_init(&file, &arena);
    put_record(&file, example, sizeof example - 1, sizeof example - 1);
    put_record(&file, bad_examples[_i].bytes, bad_examples[_i].n, bad_examples[_i].n);
    ck_refused(file_config("grain", "tfrecord", put_bytes("a", file.data, file.len)),
               bad_examples[_i].words);
}
END_TEST

/* Lengths that no file has ask for no memory. */
START_TEST(hostile_records) {
    MxText file;
    mx_text_init(&file, &arena);
    put_record(&file, example, sizeof example - 1, sizeof example - 1);
    size_t whole = file.len;
    put_record(&file, example, sizeof example - 1, UINT64_C(1) << 60);
    ck_refused(file_config("grain", "tfrecord", put_bytes("a", file.data, file.len)),
               "/a: record 2, at byte 33: it has more than 268435456 bytes");
    file.data[whole] ^= 1;
    ck_refused(file_config("grain", "tfrecord", put_bytes("a", file.data, file.len)),
               "/a: record 2, at byte 33: the checksum of its length does not fit");
    file.data[whole - 5] ^= 1;
    ck_refused(file_config("grain", "tfrecord", put_bytes("a", file.data, file.len)),
               "/a: record 1, at byte 0: its checksum does not fit");
    file.data[whole - 5] ^= 1;
    ck_refused(file_config("grain", "tfrecord", put_bytes("a", file.data, whole + 5)),
               "/a: record 2, at byte 33: the file ends inside its length");
    file.len = whole;
    put_record(&file, example, sizeof example - 1, 1 << 28);
    uint64_t allocations = mx_host_alloc_count();
    ck_refused(file_config("grain", "tfrecord", put_bytes("a", file.data, file.len)),
               "/a: record 2, at byte 33: the file ends inside it");
    ck_assert_uint_lt(mx_host_alloc_count() - allocations, 100);
}
END_TEST

/* A field of bytes of a message: its tag and length, in four bytes. */
static void put_head(MxText *out, int tag, size_t n) {
    mx_text_add(out, "%c%c%c%c", tag, (int)(0x80 | (n & 0x7f)), (int)(0x80 | (n >> 7 & 0x7f)),
                (int)(n >> 14));
}

/* A length that looks like the beginning of gzip. */
START_TEST(misleading_lengths) {
    enum { LENGTH = 0x00088b1f, ENTRY = sizeof example - 3 };
    MxText file, text;
    mx_text_init(&file, &arena);
    mx_text_init(&text, &arena);
    put_head(&text, 0x0a, LENGTH - 4);
    mx_text_addn(&text, example + 2, ENTRY);
    put_head(&text, 0x12, LENGTH - 8 - ENTRY); /* a field that nobody knows */
    while (text.len < LENGTH) mx_text_addn(&text, "x", 1);
    put_record(&file, text.data, text.len, text.len);
    ck_assert_mem_eq(file.data, "\x1f\x8b\x08", 3);
    open_data(file_config("grain", "tfrecord", put_bytes("a", file.data, file.len)));
}
END_TEST

/* Any byte of ArrayRecord that matters is under a checksum. */
START_TEST(damaged_array_records) {
    MxBytes bytes;
    MxDataset *dataset;
    const char *name = _i ? "texts_grouped.array_record" : "texts.array_record";
    const char *path = mx_arena_printf(&arena, FIXTURES "%s", name);
    ck_assert(mx_file_read(&arena, path, 1 << 20, &bytes, &err));
    int n = 0;
    for (size_t i = 24; i < bytes.size; i += i < 1400 ? 7 : 997) {
        bool is_block = i % 65536 < 24;           /* whose head is not read */
        if (is_block || !bytes.data[i]) continue; /* mostly what pads */
        bytes.data[i] ^= 0x40;
        MxDataConfig config =
            file_config("grain", "arrayrecord", put_bytes("a", bytes.data, bytes.size));
        ck_assert_msg(!mx_data_open(&arena, &config, &dataset, &err), "byte %zu", i);
        n++;
        mx_error_release(&err);
        bytes.data[i] ^= 0x40;
    }
    ck_assert_int_gt(n, 60);
}
END_TEST

/* ---- the forms that users bring */

static const struct {
    const char *name;
    bool is_sft, is_pair;
    const char *words; /* of the description, or of the refusal */
    bool is_refused;
} forms[] = {
    {"text.jsonl", 0, 0, " documents (text)", 0},
    {"awkward.jsonl", 0, 0, " documents (text)", 0},
    {"broken.jsonl", 0, 0, "broken.jsonl:2:18: not valid JSON", 1},
    {"prompt_completion.jsonl", 1, 0, " documents (prompt, completion)", 0},
    {"alpaca.jsonl", 1, 0, " documents (instruction, input, output)", 0},
    {"alpaca.json", 1, 0, " documents (instruction, input, output)", 0},
    {"preference.jsonl", 0, 1, " pairs (prompt, chosen, rejected)", 0},
    {"hh_dialogue.jsonl", 0, 1, " pairs (chosen, rejected)", 0},
    {"messages.jsonl", 1, 0, " documents (messages)", 0},
    {"messages_tools.jsonl", 1, 0, " documents (messages)", 0},
    {"sharegpt.jsonl", 1, 0, " documents (conversations)", 0},
    {"prompt_completion_conversational.jsonl", 1, 0, " documents (prompt, completion)", 0},
    {"preference_conversational.jsonl", 0, 1, " pairs (prompt, chosen, rejected)", 0},
    {"preference_implicit_prompt.jsonl", 0, 1, " pairs (chosen, rejected)", 0},
    {"unpaired_preference.jsonl", 0, 1,
     ":1: found \"prompt\", \"completion\", \"label\"; wanted \"chosen\" and \"rejected\"", 1},
    {"prompt_only.jsonl", 0, 1, ":1: found \"prompt\", \"answer\"; wanted \"chosen\" and", 1},
};

START_TEST(forms_of_users) {
    char *path = goldens_find(&arena, mx_arena_printf(&arena, "hf/datasets/%s", forms[_i].name));
    if (!path) return;
    MxDataConfig config = file_config("hf", NULL, path);
    config.is_sft = forms[_i].is_sft;
    config.pairs = forms[_i].is_pair ? MX_DATA_PAIRS_STANDARD : MX_DATA_NO_PAIRS;
    config.max_prompt_length = 24;
    config.length = 256;
    config.chat.named = goldens_find(&arena, "hf/chat/templates/qwen_tools.jinja");
    if (forms[_i].is_refused) {
        ck_refused(config, forms[_i].words);
        return;
    }
    const char *text = mx_data_describe(open_data(config));
    ck_assert_msg(strstr(text, forms[_i].words) != NULL, "%s", text);
    if (!mx_text_has_suffix(path, ".json")) return;
    MxDataConfig lines = config;
    lines.path = mx_arena_printf(&arena, "%sl", path);
    ck_same_rows(config, lines);
}
END_TEST

Suite *formats_suite(void) {
    Suite *suite = suite_create("data: formats");
    TCase *tests = tcase_create("formats");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, formats_hold_the_same, 0, MX_COUNT(same));
    tcase_add_test(tests, lines_of_text);
    tcase_add_test(tests, packed_text);
    tcase_add_loop_test(tests, refuses_lists, 0, MX_COUNT(lists));
    tcase_add_test(tests, long_lists);
    tcase_add_loop_test(tests, cut_files, 0, MX_COUNT(same));
    tcase_add_test(tests, garbage_behind);
    tcase_add_test(tests, bomb);
    tcase_add_loop_test(tests, refuses_examples, 0, MX_COUNT(bad_examples));
    tcase_add_test(tests, hostile_records);
    tcase_add_test(tests, misleading_lengths);
    tcase_add_loop_test(tests, forms_of_users, 0, MX_COUNT(forms));
    tcase_add_loop_test(tests, damaged_array_records, 0, 2);
    suite_add_tcase(suite, tests);
    return suite;
}
