/* test_train.c — tokenizers of one's own: the same tokens as the tokenizers library makes of the
 * same texts, byte by byte the same files every time, and no other tokenizer written over. */
#include "text_test.h"

#include "common/goldens.h"

#include <unistd.h>

/* The texts of the golden, added; the lines of its file. */
static MxBpe *trained_on_golden(void) {
    MxBpe *trainer = mx_bpe_new(&arena);
    MxBytes bytes;
    const char *path = goldens_find(&arena, "hf/tokenizers/trained/texts.jsonl");
    ck_assert_ptr_nonnull(path);
    ck_assert(mx_file_read(&arena, path, SIZE_MAX, &bytes, &err));
    char *line = (char *)bytes.data;
    for (char *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        MxJson *json = mx_json_parse(&arena, line, (size_t)(end - line), path, &err);
        const MxJson *text = mx_json_get(json, "text");
        MxEncoding what = {.text = mx_json_string(text), .n = mx_json_string_bytes(text)};
        ck_assert(mx_bpe_add(trainer, what, &err));
    }
    return trainer;
}

static const char *folder(const char *name) {
    return mx_arena_printf(&arena, "/tmp/mx_trained_%d_%s", (int)getpid(), name);
}

static MxJson *model_of(const char *path) {
    MxBytes bytes;
    ck_assert(mx_file_read(&arena, path, SIZE_MAX, &bytes, &err));
    MxJson *top = mx_json_parse(&arena, (const char *)bytes.data, bytes.size, path, &err);
    return mx_json_get(top, "model");
}

/* "a b", or ["a", "b"] as the library writes it. */
static const char *merge_text(const MxJson *merge) {
    if (mx_json_string(merge)) return mx_json_string(merge);
    return mx_arena_printf(&arena, "%s %s", mx_json_string(mx_json_at(merge, 0)),
                           mx_json_string(mx_json_at(merge, 1)));
}

START_TEST(as_the_library) {
    MxBpeMade made;
    const char *dir = folder("same");
    MxBpe *trainer = trained_on_golden();
    ck_assert(mx_bpe_write(trainer, 600, dir, &made, &err));
    ck_assert_int_eq(made.vocab, 600);
    ck_assert_int_eq(made.n_texts, 2);
    const MxJson *ours = model_of(mx_path_join(&arena, dir, "tokenizer.json"));
    const MxJson *theirs = model_of(goldens_find(&arena, "hf/tokenizers/trained/tokenizer.json"));
    const MxJson *vocab = mx_json_get(theirs, "vocab"), *merges = mx_json_get(theirs, "merges");
    ck_assert_uint_eq(mx_json_length(mx_json_get(ours, "vocab")), mx_json_length(vocab));
    const char *token;
    MxJson *id;
    for (void *at = NULL; mx_json_next(vocab, &at, &token, &id);) {
        int64_t wanted, found = -1;
        ck_assert(mx_json_int(id, &wanted));
        mx_json_int(mx_json_get(mx_json_get(ours, "vocab"), token), &found);
        ck_assert_msg(found == wanted, "\"%s\" is %lld, wanted %lld", token, (long long)found,
                      (long long)wanted);
    }
    ck_assert_uint_eq(mx_json_length(mx_json_get(ours, "merges")), mx_json_length(merges));
    for (size_t i = 0; i < mx_json_length(merges); i++)
        ck_assert_str_eq(merge_text(mx_json_at(mx_json_get(ours, "merges"), i)),
                         merge_text(mx_json_at(merges, i)));
    ck_assert(mx_dir_remove(dir, &err));
}
END_TEST

START_TEST(encodes_as_the_library) {
    MxBpeMade made;
    MxBytes bytes;
    const char *dir = folder("ids"),
               *path = goldens_find(&arena, "hf/tokenizers/trained/texts.jsonl");
    ck_assert(mx_bpe_write(trained_on_golden(), 600, dir, &made, &err));
    MxTokenizer *tokenizer = text_opened("huggingface", dir);
    ck_assert_int_eq(mx_tokenizer_vocab(tokenizer), 600);
    ck_assert_int_eq(mx_tokenizer_eos(tokenizer), 2);
    ck_assert_str_eq(text_ids(tokenizer, "<|im_start|><|im_end|>", 22), "1 2");
    ck_assert(mx_file_read(&arena, path, SIZE_MAX, &bytes, &err));
    const char *end = strchr((const char *)bytes.data, '\n');
    MxJson *json = mx_json_parse(&arena, (const char *)bytes.data,
                                 (size_t)(end - (char *)bytes.data), path, &err);
    const MxJson *text = mx_json_get(json, "text"), *ids = mx_json_get(json, "ids");
    MxText wanted;
    mx_text_init(&wanted, &arena);
    for (size_t i = 0; i < mx_json_length(ids); i++) {
        int64_t id = -1;
        mx_json_int(mx_json_at(ids, i), &id);
        mx_text_add(&wanted, "%s%lld", i ? " " : "", (long long)id);
    }
    ck_assert_str_eq(text_ids(tokenizer, mx_json_string(text), mx_json_string_bytes(text)),
                     wanted.data);
    ck_assert(mx_dir_remove(dir, &err));
}
END_TEST

START_TEST(another_is_not_written_over) {
    MxBpeMade made;
    const char *dir = folder("other");
    MxBpe *trainer = trained_on_golden();
    ck_assert(mx_bpe_write(trainer, 300, dir, &made, &err));
    ck_assert(mx_bpe_write(trainer, 300, dir, &made, &err)); /* the same: nothing is lost */
    ck_assert(!mx_bpe_write(trainer, 301, dir, &made, &err));
    ck_assert_str_eq(err.text.data,
                     mx_arena_printf(&arena,
                                     "%s/tokenizer.json: is another tokenizer's; name another "
                                     "folder, or remove it",
                                     dir));
    ck_assert(mx_dir_remove(dir, &err));
}
END_TEST

/* Words of one letter, a long run, and too little text for the vocabulary. */
START_TEST(ends_when_nothing_repeats) {
    MxBpeMade made;
    const char *dir = folder("little");
    MxBpe *trainer = mx_bpe_new(&arena);
    ck_assert(mx_bpe_add(trainer, (MxEncoding){.text = "aaaaa b", .n = 7}, &err));
    ck_assert(mx_bpe_write(trainer, 1000, dir, &made, &err));
    ck_assert_int_eq(made.vocab, MX_BPE_LEAST + 1); /* "aa" occurs four times, then twice */
    MxTokenizer *tokenizer = text_opened("huggingface", dir);
    ck_assert_str_eq(text_ids(tokenizer, "aaaa", 4),
                     mx_arena_printf(&arena, "%d %d", MX_BPE_LEAST, MX_BPE_LEAST));
    ck_assert(mx_dir_remove(dir, &err));
}
END_TEST

START_TEST(no_text) {
    MxBpe *trainer = mx_bpe_new(&arena);
    ck_assert(!mx_bpe_add(trainer, (MxEncoding){.text = "\xff", .n = 1, .where = {.file = "a.txt"}},
                          &err));
    ck_assert_str_eq(err.text.data, "a.txt: is not UTF-8: byte 0xff at offset 0");
}
END_TEST

Suite *text_train_suite(void) {
    Suite *suite = suite_create("train");
    TCase *tests = tcase_create("train");
    tcase_add_checked_fixture(tests, NULL, text_tear_down);
    tcase_add_test(tests, as_the_library);
    tcase_add_test(tests, encodes_as_the_library);
    tcase_add_test(tests, another_is_not_written_over);
    tcase_add_test(tests, ends_when_nothing_repeats);
    tcase_add_test(tests, no_text);
    suite_add_tcase(suite, tests);
    return suite;
}
