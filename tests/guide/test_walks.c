/* test_walks.c — texts that a guide writes, for scripts/random_schemas.py. MX_SCHEMAS names a file:
 * a line is {"schema", "texts"}; without it there is nothing to do. A line of MX_SCHEMAS.out is
 * {"error"}, or {"walks": texts as tokens come at random, "fits": whether each text fits}. */
#include "guide_test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static MxArena arena = {.name = "test"};

static void tear_down(void) {
    mx_arena_release(&arena);
}

enum { EOS = 257, VOCAB };

/* Bytes of those that may come; such as end a text are likely behind the first ones. */
static const char *write_text(MxGuide *guide, MxArena *scratch, uint64_t seed) {
    enum { FEW = 60, MOST = 4000, ODD_ONE_IN = 16 };
    MxGuided text;
    float logits[VOCAB];
    mx_guided_init(&text, scratch, guide);
    for (int n = 0; n < MOST; n++) {
        int32_t best = -1;
        double most = -INFINITY;
        memset(logits, 0, sizeof logits);
        ck_assert_msg(mx_guided_limit(&text, logits, VOCAB), "%s",
                      text.bytes.len ? text.bytes.data : "");
        for (int32_t id = 0; id < VOCAB; id++) {
            uint32_t w[4];
            mx_philox(seed, (uint64_t)n, (uint64_t)id, w);
            bool ends = id == EOS || (id < 256 && strchr("\"}]", id) && id);
            bool is_odd = (id < ' ' || id > '~') && id != EOS && w[1] % ODD_ONE_IN;
            double worth = (double)mx_uniform(w[0]) + 2 * (n > FEW && ends) - 3 * is_odd;
            if (!isinf(logits[id]) && worth > most) most = worth, best = id;
        }
        if (best == EOS || mx_guided_accept(&text, best))
            return text.bytes.len ? text.bytes.data : "";
    }
    return NULL; /* no end in sight */
}

static void answer(MxArena *scratch, const MxJson *row, int64_t line, MxJson *out) {
    enum { WALKS = 12 };
    MxError err = {0};
    MxGrammar *grammar;
    if (!mx_grammar_of_schema(scratch, mx_json_get(row, "schema"), "schema", &grammar, &err)) {
        mx_json_set_string(out, "error", err.text.data);
        mx_error_release(&err);
        return;
    }
    MxGuide *guide = mx_guide_new(scratch, grammar, guide_test_bytes(scratch));
    MxJson *walks = mx_json_put_array(out, "walks"), *fits = mx_json_put_array(out, "fits");
    for (uint64_t i = 0; i < WALKS; i++) {
        const char *text = write_text(guide, scratch, (uint64_t)line * WALKS + i);
        if (text) mx_json_push_string(walks, text);
    }
    const MxJson *texts = mx_json_get(row, "texts");
    for (size_t i = 0; i < mx_json_length(texts); i++) {
        const char *text = mx_json_string(mx_json_at(texts, i));
        MxGuided made;
        mx_guided_init(&made, scratch, guide);
        mx_json_push_int(fits,
                         mx_guided_add(&made, text, strlen(text)) && guide_test_may_end(&made));
    }
}

START_TEST(texts_of_schemas_are_written) {
    const char *path = getenv("MX_SCHEMAS");
    MxError err = {0};
    MxBytes file;
    if (!path) return;
    ck_assert_msg(mx_file_read(&arena, path, 1 << 28, &file, &err), "%s", err.text.data);
    FILE *out = fopen(mx_arena_printf(&arena, "%s.out", path), "w");
    const char *at = (const char *)file.data;
    int64_t line = 0;
    for (const char *end; (end = strchr(at, '\n')); at = end + 1, line++) {
        MxArena scratch = {.name = "schema"};
        const MxJson *row = mx_json_parse(&scratch, at, (size_t)(end - at), path, &err);
        ck_assert_msg(row != NULL, "%s", err.text.data);
        MxJson *found = mx_json_object(&scratch);
        answer(&scratch, row, line, found);
        fprintf(out, "%s\n", mx_json_dump(&scratch, found, false));
        fflush(out); /* what follows may not come back */
        mx_arena_release(&scratch);
    }
    fclose(out);
}
END_TEST

Suite *walks_suite(void) {
    Suite *suite = suite_create("walks");
    TCase *tcase = tcase_create("walks");
    tcase_set_timeout(tcase, 600);
    tcase_add_checked_fixture(tcase, NULL, tear_down);
    tcase_add_test(tcase, texts_of_schemas_are_written);
    suite_add_tcase(suite, tcase);
    return suite;
}
