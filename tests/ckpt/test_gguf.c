/* test_gguf.c — GGUF files beside what llama.cpp's converter makes of the same folders. */
#include "tools.h"

#include "ckpt/gguf.h"

#include <math.h>
#include <stdlib.h>

/* ---- a reader */

enum { UINT32 = 4, INT32, FLOAT32, BOOL, STRING, ARRAY };

typedef struct Reader {
    MxBytes file;
    size_t at;
} Reader;

static uint64_t take(Reader *r, int bytes) {
    uint64_t value = 0;
    ck_assert_uint_le(r->at + (size_t)bytes, r->file.size);
    for (int i = 0; i < bytes; i++) value |= (uint64_t)r->file.data[r->at++] << 8 * i;
    return value;
}

static const char *take_text(Reader *r, size_t *n) {
    *n = take(r, 8);
    ck_assert_uint_le(r->at + *n, r->file.size);
    r->at += *n;
    return mx_arena_strndup(&arena, (const char *)r->file.data + r->at - *n, *n);
}

static double take_number(Reader *r, int kind) {
    uint32_t bits = (uint32_t)take(r, kind == BOOL ? 1 : 4);
    float value;
    memcpy(&value, &bits, sizeof value);
    return kind == FLOAT32 ? (double)value : kind == INT32 ? (double)(int32_t)bits : (double)bits;
}

/* As scripts/golden_gguf.py tells lists: how many values, and the hash of their bytes. */
static void take_list(Reader *r, MxJson *out) {
    int kind = (int)take(r, 4);
    int64_t n = (int64_t)take(r, 8);
    size_t first = r->at, length;
    MxText texts;
    mx_text_init(&texts, &arena);
    for (int64_t i = 0; i < n; i++) {
        if (kind != STRING)
            take_number(r, kind);
        else {
            const char *text = take_text(r, &length);
            mx_text_addn(&texts, text, length);
            mx_text_addn(&texts, "", 1);
        }
    }
    uint64_t hash = kind == STRING ? mx_hash64(texts.data, texts.len)
                                   : mx_hash64(r->file.data + first, r->at - first);
    mx_json_set_int(out, "n", n);
    mx_json_set_string(out, "hash", mx_arena_printf(&arena, "%016llx", (unsigned long long)hash));
}

/* All facts: {"value": …} or {"n": …, "hash": …} by key. */
static MxJson *take_facts(Reader *r, int64_t n) {
    MxJson *facts = mx_json_object(&arena);
    size_t length;
    for (int64_t i = 0; i < n; i++) {
        const char *key = take_text(r, &length);
        ck_assert_msg(!mx_json_get(facts, key), "\"%s\" comes twice", key);
        MxJson *fact = mx_json_put_object(facts, key);
        int kind = (int)take(r, 4);
        if (kind == ARRAY)
            take_list(r, fact);
        else if (kind == STRING)
            mx_json_set_string(fact, "value", take_text(r, &length));
        else if (kind == BOOL)
            mx_json_set_bool(fact, "value", take_number(r, kind) != 0);
        else
            mx_json_set_number(fact, "value", take_number(r, kind));
    }
    return facts;
}

/* How arrays of a type are told, by its number in files. */
static const struct {
    uint64_t number;
    const char *name;
    int64_t block, bytes;
} types[] = {{0, "F32", 1, 4}, {1, "F16", 1, 2}, {8, "Q8_0", 32, 34}, {30, "BF16", 1, 2}};

/* A file: its facts, and its tensors as the golden lists them. */
static MxJson *read_gguf(const char *name, MxJson **facts) {
    Reader r = {.file = content(name)};
    MxJson *tensors = mx_json_object(&arena);
    size_t length;
    ck_assert(!memcmp(r.file.data, "GGUF", 4));
    r.at = 4;
    ck_assert_uint_eq(take(&r, 4), 3);
    int64_t n = (int64_t)take(&r, 8), n_facts = (int64_t)take(&r, 8);
    *facts = take_facts(&r, n_facts);
    Reader head = r;
    for (int pass = 0; pass < 2; pass++) {
        size_t data = (r.at + 31) / 32 * 32; /* where it starts, once all heads are read */
        r.at = head.at;
        for (int64_t i = 0; i < n; i++) {
            const char *tensor = take_text(&r, &length);
            int64_t count = 1;
            MxText text;
            mx_text_init(&text, &arena);
            for (uint64_t d = take(&r, 4); d > 0; d--) {
                int64_t dim = (int64_t)take(&r, 8);
                count *= dim;
                mx_text_add(&text, " %lld", (long long)dim);
            }
            const uint64_t number = take(&r, 4);
            int type = 0;
            while (type < MX_COUNT(types) - 1 && types[type].number != number) type++;
            ck_assert_uint_eq(types[type].number, number);
            size_t at = data + take(&r, 8),
                   bytes = (size_t)(count / types[type].block * types[type].bytes);
            if (!pass) continue;
            ck_assert_uint_le(at + bytes, r.file.size);
            mx_text_add(&text, " %s %016llx", types[type].name,
                        (unsigned long long)mx_hash64(r.file.data + at, bytes));
            mx_json_set_string(tensors, tensor, text.data);
        }
    }
    return tensors;
}

/* ---- beside the original */

static const MxJson *golden(const char *kind, const char *name) {
    MxBytes bytes;
    const char *path = goldens_need(&arena, "hf/gguf.json");
    ck_ok(mx_file_read(&arena, path, 1 << 20, &bytes, &err));
    const MxJson *all = mx_json_parse(&arena, (const char *)bytes.data, bytes.size, path, &err);
    const MxJson *found = mx_json_get(mx_json_get(all, kind), name);
    ck_assert_msg(found != NULL, "no %s of \"%s\"", kind, name);
    return found;
}

/* Every fact of the golden, but those of which the second list has the name. */
static void ck_facts(const MxJson *facts, const MxJson *wanted, const char *const *but) {
    const char *key;
    MxJson *fact;
    for (void *at = NULL; mx_json_next(wanted, &at, &key, &fact);) {
        int skipped = 0;
        while (but[skipped] && strcmp(but[skipped], key)) skipped++;
        const MxJson *value = mx_json_get(fact, "value"), *found = mx_json_get(facts, key);
        if (but[skipped]) continue;
        ck_assert_msg(found != NULL, "\"%s\" is missing", key);
        double a, b;
        if (mx_json_number(value, &a)) {
            ck_assert(mx_json_number(mx_json_get(found, "value"), &b));
            ck_assert_msg(a == b, "\"%s\": %.9g, wanted %.9g", key, b, a);
            continue;
        }
        const char *member = value ? "value" : "hash";
        ck_assert_msg(!strcmp(mx_json_dump(&arena, mx_json_get(found, member), false),
                              mx_json_dump(&arena, mx_json_get(fact, member), false)),
                      "\"%s\" is %s", key, mx_json_dump(&arena, found, false));
    }
}

/* Models, and words of their config.json that llama.cpp's converter does not look at, as llama.cpp
 * wants them. */
static const struct {
    const char *name, *word, *instead;
    const char *word_too, *instead_too;
    const char *type; /* NULL = bfloat16 */
} models[] = {
    {.name = "llama"},
    {.name = "llama_bf16"},
    {.name = "llama_rope3"},
    {.name = "llama_linear"},
    {.name = "llama_sharded"},
    {.name = "mixtral"},
    {.name = "qwen2"},
    {.name = "qwen3"},
    {.name = "qwen3_moe"},
    {.name = "gemma"},
    {.name = "gemma2",
     .word = "\"query_pre_attn_scalar\": 24",
     .instead = "\"query_pre_attn_scalar\": 16"},
    {.name = "gemma3_text",
     .word = "\"query_pre_attn_scalar\": 20",
     .instead = "\"query_pre_attn_scalar\": 16",
     .word_too = "full_attention\",",
     .instead_too = "sliding_attention\","},
    {.name = "olmo3"},
    {.name = "olmo3_tiny",
     .word = "\"attention_factor\": 1.2",
     .instead = "\"attention_factor\": 1.138629436111989"},
    {.name = "llama", .type = "q8_0"},
    {.name = "qwen3_moe", .type = "q8_0"},
    {.name = "qwen2", .type = "float16"},
    {.name = "gemma3_text",
     .word = "\"query_pre_attn_scalar\": 20",
     .instead = "\"query_pre_attn_scalar\": 16",
     .word_too = "full_attention\",",
     .instead_too = "sliding_attention\",",
     .type = "q8_0"},
};

static void make_gguf(int i, const char *name) {
    const char *from = goldens_find(&arena, mx_path_join(&arena, "hf/models", models[i].name));
    if (models[i].word) {
        put_hf_model(models[i].name, "config.json", models[i].word, models[i].instead);
        from = in_folder("x");
    }
    if (models[i].word_too)
        put_changed("x/config.json", in_folder("x/config.json"), models[i].word_too,
                    models[i].instead_too);
    ck_tool(0, "mxconvert %s {}/%s --to-gguf --dtype %s --force", from, name,
            models[i].type ? models[i].type : "bfloat16");
}

START_TEST(models_are_those_of_llama_cpp) {
    /* Of a model all of whose layers have experts nobody reads it. */
    bool is_moe = !strcmp(models[_i].name, "qwen3_moe");
    const char *const unread[] = {is_moe ? "qwen3moe.feed_forward_length" : NULL, NULL};
    const char *name = mx_path_join(&arena, "hf/models", models[_i].name);
    if (!goldens_find(&arena, name)) return;
    const char *type = models[_i].type, *golden_name = models[_i].name;
    if (type) golden_name = mx_arena_printf(&arena, "%s %s", golden_name, type);
    const MxJson *wanted = golden("models", golden_name);
    const MxJson *list = mx_json_get(wanted, "tensors");
    MxJson *facts;
    make_gguf(_i, "a.gguf");
    const MxJson *tensors = read_gguf("a.gguf", &facts);
    ck_facts(facts, mx_json_get(wanted, "metadata"), unread);
    ck_assert_uint_eq(mx_json_length(tensors), mx_json_length(list));
    for (size_t i = 0; i < mx_json_length(list); i++) {
        const MxJson *row = mx_json_at(list, i), *dims = mx_json_at(row, 2);
        const char *tensor = mx_json_string(mx_json_at(row, 0));
        MxText text;
        mx_text_init(&text, &arena);
        for (size_t d = 0; d < mx_json_length(dims); d++)
            mx_text_add(&text, " %s", mx_json_dump(&arena, mx_json_at(dims, d), false));
        mx_text_add(&text, " %s %s", mx_json_string(mx_json_at(row, 1)),
                    mx_json_string(mx_json_at(row, 3)));
        const char *found = mx_json_string(mx_json_get(tensors, tensor));
        ck_assert_msg(found && !strcmp(found, text.data), "\"%s\":%s, wanted%s", tensor,
                      found ? found : " none", text.data);
    }
    setenv("MX_PIECE_BYTES", "150", 1);
    make_gguf(_i, "b.gguf");
    unsetenv("MX_PIECE_BYTES");
    const MxJson *again = read_gguf("b.gguf", &facts);
    ck_assert_str_eq(mx_json_dump(&arena, again, false), mx_json_dump(&arena, tensors, false));
}
END_TEST

/* What of the golden is not of the files, or names what only published tokenizers have a name
 * for. */
static const char *const beside[] = {"tokenizer.ggml.bos_token_id",
                                     "tokenizer.ggml.eos_token_id",
                                     "tokenizer.ggml.unknown_token_id",
                                     "tokenizer.ggml.padding_token_id",
                                     "tokenizer.ggml.add_bos_token",
                                     "tokenizer.ggml.add_eos_token",
                                     "tokenizer.ggml.add_sep_token",
                                     "tokenizer.ggml.eot_token_id",
                                     "tokenizer.ggml.pre",
                                     "vocab_size",
                                     NULL,
                                     NULL};

static const struct {
    const char *name, *split;
    bool has_pieces;
} tokenizers[] = {{"llama2", "default", true},
                  {"llama3", "llama-bpe", false},
                  {"gpt2", "gpt-2", false},
                  {"qwen", "qwen2", false},
                  {"gemma", "default", true}};

START_TEST(vocabularies_are_those_of_llama_cpp) {
    const char *dir = mx_path_join(&arena, "hf/tokenizers", tokenizers[_i].name);
    const char *path = goldens_find(&arena, mx_path_join(&arena, dir, "tokenizer.json"));
    if (tokenizers[_i].has_pieces &&
        !goldens_find(&arena, mx_path_join(&arena, dir, "tokenizer.model")))
        return;
    const MxJson *wanted = golden("tokenizers", tokenizers[_i].name);
    const char *but[MX_COUNT(beside)];
    memcpy(but, beside, sizeof but);
    /* A piece of Gemma's that its user defined is plain to the converter. */
    if (!strcmp(tokenizers[_i].name, "gemma")) but[MX_COUNT(but) - 2] = "tokenizer.ggml.token_type";
    MxGguf gguf;
    MxText notes;
    int64_t n = 0;
    mx_text_init(&notes, &arena);
    mx_gguf_init(&gguf, &arena);
    ck_assert(mx_json_int(mx_json_get(wanted, "vocab_size"), &n));
    const MxGgufTokenizer from = {
        .dir = mx_path_dir(&arena, path), .bos = 1, .eos = -1, .unk = -1, .pad = -1};
    ck_ok(gguf_add_vocabulary(&arena, &from, n, &gguf, &notes, &err));
    Reader r = {.file = {(uint8_t *)gguf.facts.data, gguf.facts.len}};
    const MxJson *facts = take_facts(&r, gguf.n);
    ck_facts(facts, wanted, but);
    const MxJson *split = mx_json_get(mx_json_get(facts, "tokenizer.ggml.pre"), "value");
    ck_assert_str_eq(mx_json_string(split), tokenizers[_i].split);
    mx_gguf_init(&gguf, &arena);
    ck_failed(gguf_add_vocabulary(&arena, &from, n - 4, &gguf, &notes, &err), "; the model has");
}
END_TEST

static const char *template_of(void) {
    MxGguf gguf;
    MxText notes;
    mx_text_init(&notes, &arena);
    mx_gguf_init(&gguf, &arena);
    const MxGgufTokenizer from = {.dir = folder, .bos = -1, .eos = -1, .unk = -1, .pad = -1};
    ck_ok(gguf_add_vocabulary(&arena, &from, 2000, &gguf, &notes, &err));
    Reader r = {.file = {(uint8_t *)gguf.facts.data, gguf.facts.len}};
    const MxJson *facts = take_facts(&r, gguf.n);
    return mx_json_string(mx_json_get(mx_json_get(facts, "tokenizer.chat_template"), "value"));
}

/* In the order in which transformers looks for them. */
START_TEST(templates_go_along) {
    static const char *const configs[] = {
        "{\"chat_template\": \"of the config\"}",
        "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"of tools\"}, {\"name\": "
        "\"default\", \"template\": \"of the config\"}]}"};
    put_changed("tokenizer.json", goldens_need(&arena, "hf/tokenizers/qwen/tokenizer.json"), NULL,
                NULL);
    ck_assert_ptr_null(template_of());
    for (int i = 0; i < MX_COUNT(configs); i++) {
        put_content("tokenizer_config.json", configs[i], strlen(configs[i]));
        ck_assert_str_eq(template_of(), "of the config");
    }
    put_content("chat_template.jinja", "of its file", strlen("of its file"));
    ck_assert_str_eq(template_of(), "of its file");
}
END_TEST

/* ---- of runs, and what cannot be */

START_TEST(runs_become_such_files) {
    MxJson *facts;
    const char *from = goldens_need(&arena, "hf/models/llama");
    ck_tool(0,
            "mxtrain model=%s run_name=r dataset_type=synthetic steps=1 eval_interval=-1 "
            "per_device_batch_size=1 max_target_length=16 learning_rate=0.0 log_config=false "
            "base_output_directory={}",
            from);
    ck_tool(0, "mxconvert {}/r {}/run.gguf --to-gguf --dtype bfloat16");
    ck_says("result: llama, 21 tensors, matrices in bfloat16");
    ck_tool(0, "mxconvert %s {}/theirs.gguf --to-gguf --dtype bfloat16", from);
    const MxJson *a = read_gguf("run.gguf", &facts), *b = read_gguf("theirs.gguf", &facts);
    ck_assert_str_eq(mx_json_dump(&arena, a, false), mx_json_dump(&arena, b, false));
}
END_TEST

START_TEST(others_are_refused) {
    const char *llama = goldens_need(&arena, "hf/models/llama");
    const char *oss = goldens_need(&arena, "hf/models/gpt_oss_tiny");
    ck_tool(65, "mxconvert %s {}/a.gguf --to-gguf", oss);
    ck_says("decoder_block \"gpt_oss\" is not available yet, wanted one of llama2, mistral");
    ck_tool(65, "mxconvert %s {}/a.gguf --to-gguf", goldens_need(&arena, "hf/models/mistral"));
    ck_says("\"llama\" sees all tokens before, not 8 of 128 (sliding_window)");
    ck_tool(2, "mxconvert %s {}/a --to-gguf", llama);
    ck_says("--to-gguf makes a file whose name ends in .gguf");
    ck_tool(2, "mxconvert %s {}/a.gguf", llama);
    ck_says("--to-gguf makes a file whose name ends in .gguf, and nothing else does");
    ck_tool(2, "mxconvert %s {}/a.gguf --to-gguf --to-hf", llama);
    ck_says("--to-hf and --to-gguf exclude each other");
    ck_assert(!mx_file_exists(in_folder("a.gguf")));
    const char *t5 = goldens_need(&arena, "hf/tokenizers/t5/tokenizer.json");
    MxGguf gguf;
    MxText notes;
    mx_text_init(&notes, &arena);
    mx_gguf_init(&gguf, &arena);
    const MxGgufTokenizer pieces = {.dir = mx_path_dir(&arena, t5)};
    ck_failed(gguf_add_vocabulary(&arena, &pieces, 2000, &gguf, &notes, &err),
              "found \"Unigram\", --to-gguf wants BPE");
    put_changed("tokenizer.json", goldens_need(&arena, "hf/tokenizers/qwen/tokenizer.json"),
                "p{N}|", "p{N}+|");
    const MxGgufTokenizer other = {.dir = folder};
    ck_failed(gguf_add_vocabulary(&arena, &other, 2000, &gguf, &notes, &err),
              "\"pre_tokenizer\" splits texts in a way for which --to-gguf knows no name");
}
END_TEST

/* What is nearest to infinity is no number of theirs. */
START_TEST(halves_end) {
    static const struct {
        float x;
        unsigned half;
        bool fits;
    } rows[] = {{65504, 0x7bff, true},       {65519.996f, 0x7bff, true},
                {65520, 0x7c00, false},      {-1e5f, 0xfc00, false},
                {0x1p-24f, 1, true},         {0x1p-25f, 0, true},
                {0x1.8p-24f, 2, true},       {0x1.ff8p-15f, 0x3ff, true},
                {0x1.ffcp-15f, 0x400, true}, {1.00048828125f, 0x3c00, true}};
    for (int i = 0; i < MX_COUNT(rows); i++) {
        uint8_t out[2];
        ck_assert_int_eq(mx_gguf_types[MX_GGUF_F16].encode(&rows[i].x, 1, out), rows[i].fits);
        ck_assert_uint_eq(out[0] | (unsigned)out[1] << 8, rows[i].half);
    }
    float block[32] = {1};
    uint8_t out[34];
    ck_assert(mx_gguf_types[MX_GGUF_Q8_0].encode(block, 32, out));
    block[7] = NAN;
    ck_assert(!mx_gguf_types[MX_GGUF_Q8_0].encode(block, 32, out));
}
END_TEST

Suite *gguf_suite(void) {
    Suite *suite = suite_create("ckpt/gguf");
    TCase *tcase = add_case(suite, "files");
    tcase_add_test(tcase, halves_end);
    tcase_add_loop_test(tcase, models_are_those_of_llama_cpp, 0, MX_COUNT(models));
    tcase_add_loop_test(tcase, vocabularies_are_those_of_llama_cpp, 0, MX_COUNT(tokenizers));
    tcase_add_test(tcase, templates_go_along);
    tcase_add_test(tcase, runs_become_such_files);
    tcase_add_test(tcase, others_are_refused);
    return suite;
}
