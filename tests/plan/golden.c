/* golden.c — what MaxText says of the real models: every parameter with its specs and shard,
 * counts, TFLOPs, the sufficiency check. The first row of each table is asked for through the
 * command line, the others in this process. Models without a preset are listed by name as not
 * built. */
#include "plan_test.h"

#include <plan/internal.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static bool is_built(const char *model) {
    return mx_file_exists(mx_arena_printf(&arena, "configs/models/%s.yml", model));
}

/* Names that were met, each once, in order. */
typedef struct NameList {
    MxText text;
    MxMap seen;
} NameList;

static void list_init(NameList *list) {
    mx_text_init(&list->text, &arena);
    mx_map_init(&list->seen, &arena);
}

static void list_add(NameList *list, const char *name) {
    if (mx_map_get(&list->seen, name, 0)) return;
    mx_map_set(&list->seen, name, 1);
    mx_text_add(&list->text, " %s", name);
}

/* ---- parameters */

static const char *const columns[] = {"path",     "shape", "dtype",      "logical",
                                      "spec_raw", "spec",  "shard_shape"};

static const char *golden_column(const char *column, bool is_nnx) {
    bool is_shared = is_nnx && (!strcmp(column, "shape") || !strcmp(column, "dtype"));
    return is_shared ? column : mx_arena_printf(&arena, "%s_%s", is_nnx ? "nnx" : "linen", column);
}

static const char *row_text(const Table *t, int row, bool is_golden, bool is_nnx) {
    MxText text;
    mx_text_init(&text, &arena);
    for (int c = 0; c < MX_COUNT(columns); c++)
        mx_text_add(&text, "%s\t",
                    cell(t, row, is_golden ? golden_column(columns[c], is_nnx) : columns[c]));
    return text.data;
}

static MxPlan sharding_of(const char *words) {
    MxPlan plan;
    MxError err = {0};
    bool ok = plan_sharding(&arena, config_of(words), &plan, &err);
    ck_assert_msg(ok, "%s: %s", words, ok ? "" : err.text.data);
    return plan;
}

static const char *dump_of(const char *words) {
    MxText text;
    MxError err = {0};
    mx_text_init(&text, &arena);
    bool ok = mx_plan_dump_sharding(&arena, config_of(words), &text, &err);
    ck_assert_msg(ok, "%s: %s", words, ok ? "" : err.text.data);
    return text.data;
}

/* The dump equals the golden columns of one form, as sets of rows. Returns how many. */
static int check_table(const char *name, const char *words, bool is_nnx, bool is_first) {
    words = mx_arena_printf(&arena, "%s pure_nnx=%s", words, is_nnx ? "true" : "false");
    const char *dump = dump_of(words);
    if (is_first) {
        const char *file = temp_path("dump.tsv");
        run_ok(mx_arena_printf(&arena, "--plan --dump-sharding %s %s", file, words));
        ck_assert_str_eq(read_text(file), dump);
    }
    Table got = table_of(dump, name);
    Table want = golden_read(mx_arena_printf(&arena, "params/%s.tsv", name));
    MxMap rows;
    mx_map_init(&rows, &arena);
    int n = 0;
    for (int i = 0; i < want.n_rows; i++) {
        if (!strcmp(cell(&want, i, golden_column("logical", is_nnx)), "-")) continue;
        mx_map_set(&rows, row_text(&want, i, true, is_nnx), 1);
        n++;
    }
    ck_assert_msg(got.n_rows == n, "%s: %d rows, wanted %d", name, got.n_rows, n);
    for (int i = 0; i < got.n_rows; i++) {
        const char *row = row_text(&got, i, false, is_nnx);
        ck_assert_msg(mx_map_get(&rows, row, 0) == 1, "%s: unexpected row %s", name, row);
        mx_map_set(&rows, row, 2);
    }
    return n;
}

/* All tables of an index. */
static void check_tables(const char *file) {
    Table index = golden_read(file);
    NameList not_built, missing;
    list_init(&not_built);
    list_init(&missing);
    int n = 0, n_rows = 0, n_not_built = 0, n_missing = 0, n_refused = 0;
    for (int i = 0; i < index.n_rows; i++) {
        const char *name = cell(&index, i, "name"), *model = cell(&index, i, "model");
        bool is_unscanned = !strcmp(cell(&index, i, "layers"), "unscan");
        const char *words = mx_arena_printf(
            &arena, "--config configs/base.yml model_name=%s override_model_config=true %s%s",
            model, cell(&index, i, "overrides"), is_unscanned ? " scan_layers=false" : "");
        for (int form = 0; form < 2; form++) {
            bool is_nnx = form == 0;
            if (strcmp(cell(&index, i, is_nnx ? "nnx" : "linen"), "ok")) {
                n_refused++; /* MaxText cannot build that state, or was not asked to */
            } else if (!is_built(model)) {
                list_add(&not_built, model);
                n_not_built++;
            } else if (!golden_has(mx_arena_printf(&arena, "params/%s.tsv", name))) {
                list_add(&missing, name);
                n_missing++;
            } else {
                n_rows += check_table(name, words, is_nnx, !n);
                n++;
            }
        }
    }
    printf("golden %s: %d tables (%d rows) equal; %d not made by MaxText; %d of models not "
           "built:%s\n",
           file, n, n_rows, n_refused, n_not_built, not_built.text.data);
    if (n_missing) printf("  %d not in this set:%s\n", n_missing, missing.text.data);
    ck_assert_int_gt(n, 0);
    if (goldens_is_complete()) ck_assert_int_eq(n_missing, 0);
}

START_TEST(parameters) {
    check_tables("params/params_index.tsv");
}
END_TEST

/* shard_exp_on_fsdp and use_2d_fsdp_sharding; norms whose stacks are cut along their first dim. */
START_TEST(experts) {
    check_tables("params/experts_index.tsv");
}
END_TEST

/* Mesh axes in their order: in a pipeline stages come before data. */
START_TEST(meshes) {
    Table index = golden_read("params/params_index.tsv");
    int n = 0, n_stages = 0;
    for (int i = 0; i < index.n_rows; i++) {
        const char *model = cell(&index, i, "model"), *axes = cell(&index, i, "mesh_axes");
        if (strcmp(cell(&index, i, "nnx"), "ok") || !is_built(model)) continue;
        const char *words = mx_arena_printf(&arena, "--config configs/base.yml model_name=%s %s",
                                            model, cell(&index, i, "overrides"));
        MxText told;
        MxError err = {0};
        mx_text_init(&told, &arena);
        ck_assert(mx_plan_explain(&arena, config_of(words), "None", &told, &err));
        const char *want = strcmp(axes, "all=1") ? axes : "one device";
        ck_assert_msg(strstr(told.data, mx_arena_printf(&arena, "mesh      %s\n", want)),
                      "%s: %s\n%s", cell(&index, i, "name"), want, told.data);
        if (!n)
            ck_assert(
                strstr(run_ok(mx_arena_printf(&arena, "--explain-sharding None %s", words)).out,
                       told.data));
        n_stages += strstr(axes, "stage") != NULL;
        n++;
    }
    printf("golden params: %d meshes equal, %d with stages\n", n, n_stages);
    ck_assert_int_gt(n_stages, 0);
}
END_TEST

/* ---- counts and TFLOPs */

START_TEST(counts) {
    Table t = golden_read("cost/cost_params.tsv");
    NameList not_built;
    list_init(&not_built);
    int n = 0;
    for (int i = 0; i < t.n_rows; i++) {
        const char *model = cell(&t, i, "model");
        if (!is_built(model)) {
            list_add(&not_built, model);
            continue;
        }
        const char *words =
            mx_arena_printf(&arena, "--config configs/base.yml model_name=%s", model);
        const PlanCount is = sharding_of(words).parameters;
        const MxJson *plan = n ? NULL : run_json(words);
        const struct {
            const char *column, *member;
            int64_t value;
        } pairs[] = {{"params", "parameters.total", is.total},
                     {"active_params", "parameters.active", is.active},
                     {"embedding_params", "parameters.embedding", is.embedding},
                     {"bytes", "parameters.bytes", is.bytes}};
        for (int p = 0; p < MX_COUNT(pairs); p++) {
            ck_assert_msg(pairs[p].value == strtoll(cell(&t, i, pairs[p].column), NULL, 10),
                          "%s: %s", model, pairs[p].column);
            if (plan) ck_assert_int_eq(json_int(plan, pairs[p].member), pairs[p].value);
        }
        const char *reported = mx_arena_printf(&arena, "%.3f billion", (double)is.total * 1e-9);
        ck_assert_str_eq(reported, cell(&t, i, "reported"));
        n++;
    }
    printf("golden cost_params: %d of %d equal; not built:%s\n", n, t.n_rows, not_built.text.data);
    ck_assert_int_gt(n, 0);
}
END_TEST

/* As Python's repr: the shortest digits that read back equal. */
static const char *repr(double x) {
    char *text = NULL;
    for (int digits = 15; digits <= 17; digits++) {
        text = mx_arena_printf(&arena, "%.*g", digits, x);
        if (strtod(text, NULL) == x) break;
    }
    return text;
}

/* Half a row a device wants two devices; TFLOPs are those of one. */
START_TEST(tflops) {
    Table t = golden_read("cost/cost_tflops.tsv");
    NameList not_built;
    list_init(&not_built);
    int n = 0;
    for (int i = 0; i < t.n_rows; i++) {
        const char *model = cell(&t, i, "model");
        if (!is_built(model)) {
            list_add(&not_built, model);
            continue;
        }
        ck_assert_str_eq(cell(&t, i, "status"), "ok");
        const char *words = mx_arena_printf(
            &arena,
            "--config configs/base.yml model_name=%s override_model_config=true num_devices=2 "
            "per_device_batch_size=%s max_target_length=%s gradient_accumulation_steps=%s",
            model, cell(&t, i, "per_device_batch_size"), cell(&t, i, "max_target_length"),
            cell(&t, i, "grad_accum"));
        const MxTflops is = mx_model_tflops(sharding_of(words).model);
        const MxJson *plan = n ? NULL : run_json(words);
        const char *where = mx_arena_printf(&arena, "row %d, %s", i + 2, model);
        const struct {
            const char *column, *member;
            double value;
        } pairs[] = {{"total_tflops", "tflops_per_device.total", is.total},
                     {"weight_tflops", "tflops_per_device.learnable", is.learnable},
                     {"attention_tflops", "tflops_per_device.attention", is.attention}};
        for (int p = 0; p < MX_COUNT(pairs); p++) {
            ck_assert_msg(!strcmp(repr(pairs[p].value), cell(&t, i, pairs[p].column)),
                          "%s: %s is %s, wanted %s", where, pairs[p].column, repr(pairs[p].value),
                          cell(&t, i, pairs[p].column));
            if (plan) ck_assert(json_number(plan, pairs[p].member) == pairs[p].value);
        }
        n++;
    }
    printf("golden cost_tflops: %d of %d equal; not built:%s\n", n, t.n_rows, not_built.text.data);
    ck_assert_int_gt(n, 0);
}
END_TEST

/* ---- is enough of it sharded */

/* "fsdp=4,tensor=2" as overrides. */
static const char *axes_words(const char *axes) {
    MxText words;
    mx_text_init(&words, &arena);
    for (size_t n, at = 0; axes[at]; at += n, at += axes[at] == ',') {
        n = strcspn(axes + at, ",");
        int name = (int)strcspn(axes + at, "=");
        mx_text_add(&words, "ici_%.*s_parallelism%.*s ", name, axes + at, (int)n - name,
                    axes + at + name);
    }
    return words.data;
}

/* The mesh's overrides, taken from any table of that mesh, else its axes, and a changed rule after
 * "+". */
static const char *mesh_words(const Table *index, const char *mesh, const char *axes) {
    size_t len = strcspn(mesh, "+");
    const char *plus = mesh[len] ? mesh + len + 1 : NULL, *words = NULL;
    for (int i = 0; i < index->n_rows && !words; i++) {
        const char *name = cell(index, i, "mesh");
        if (strlen(name) == len && !strncmp(name, mesh, len)) words = cell(index, i, "overrides");
    }
    if (!words) words = axes_words(axes);
    if (!plus) return words;
    static const struct {
        const char *name, *rule;
    } embeds[] = {{"embed-first-rule-only", "[embed,[fsdp,fsdp_transpose]]"},
                  {"embed-last-rule-only", "[embed,[fsdp,context]]"}};
    for (int i = 0; i < MX_COUNT(embeds); i++)
        if (!strcmp(plus, embeds[i].name))
            return mx_arena_printf(&arena, "%s logical_axis_rules=[%s]", words, embeds[i].rule);
    ck_assert(mx_text_has_suffix(plus, "-unsharded"));
    int axis = (int)(strlen(plus) - strlen("-unsharded"));
    return mx_arena_printf(&arena, "%s logical_axis_rules=[[%.*s,[]]]", words, axis, plus);
}

/* MaxText divides elements by bytes, we by elements (DIFFERENCES 7): its tolerance is asked for
 * times the bytes of a float32. */
static void check_sufficiency(const Table *t, int i, const char *more, bool is_first) {
    double tolerance = 4 * strtod(cell(t, i, "tolerance"), NULL);
    const char *words =
        mx_arena_printf(&arena,
                        "--config configs/base.yml model_name=%s override_model_config=true "
                        "sharding_tolerance=%.17g %s",
                        cell(t, i, "model"), tolerance, more);
    const MxPlan is = sharding_of(words);
    const MxShardReport *report = &is.unsharded;
    const MxJson *plan = is_first ? run_json(words) : NULL;
    const struct {
        const char *column, *member;
        int64_t value;
    } pairs[] = {
        {"unsharded_tensors", "sharding_check.unsharded_arrays", report->n_unsharded},
        {"unsharded_size", "sharding_check.unsharded_parameters", report->unsharded_elements},
        {"total_bytes", "sharding_check.total_bytes", report->total_bytes},
        {"total_params", "sharding_check.total_parameters", report->total_elements}};
    for (int p = 0; p < MX_COUNT(pairs); p++) {
        ck_assert_msg(pairs[p].value == strtoll(cell(t, i, pairs[p].column), NULL, 10),
                      "sharding_check row %d: %s", i + 2, pairs[p].column);
        if (plan) ck_assert_int_eq(json_int(plan, pairs[p].member), pairs[p].value);
    }
    double ratio = (double)report->unsharded_elements / (double)report->total_bytes;
    ck_assert_str_eq(repr(ratio), repr(strtod(cell(t, i, "ratio"), NULL)));
    bool is_ok = !is.unsharded_text;
    ck_assert_msg(is_ok == !strcmp(cell(t, i, "result"), "ok"), "sharding_check row %d: ok", i + 2);
    if (plan) ck_assert(json_bool(plan, "sharding_check.ok") == is_ok);
}

START_TEST(sufficiency) {
    Table t = golden_read("cost/sharding_check.tsv"),
          index = golden_read("params/params_index.tsv");
    NameList not_built;
    list_init(&not_built);
    int n = 0, n_refused = 0, n_not_built = 0;
    for (int i = 0; i < t.n_rows; i++) {
        if (!is_built(cell(&t, i, "model"))) {
            list_add(&not_built, cell(&t, i, "model"));
            n_not_built++;
        } else if (mx_text_has_prefix(cell(&t, i, "result"), "ValueError")) {
            n_refused++;
        } else {
            const char *mesh = cell(&t, i, "mesh"), *axes = cell(&t, i, "mesh_axes");
            check_sufficiency(&t, i, mesh_words(&index, mesh, axes), !n);
            n++;
        }
    }
    printf("golden sharding_check: %d of %d equal; %d refused by MaxText; %d of models not "
           "built:%s\n",
           n, t.n_rows, n_refused, n_not_built, not_built.text.data);
    ck_assert_int_gt(n, 0);
}
END_TEST

/* What the golden table does not vary. Values: MaxText 0.2.4, calculate_tflops_training_per_device
 * on its base.yml with packing=false. */
static const struct {
    const char *words, *total, *learnable, *attention;
} other_tflops[] = {
    {"model_name=llama3-8b mtp_num_layers=2 gradient_accumulation_steps=2", "202.16411062272",
     "195.154723995648", "7.009386627072001"},
    {"model_name=mistral-7b mtp_num_layers=1 per_device_batch_size=4", "373.816773574656",
     "360.210317180928", "13.606456393728001"},
    {"model_name=llama2-7b use_dpo=true per_device_batch_size=2", "225.29680447897601",
     "162.375533592576", "8.796093022208"},
    {"model_name=qwen3-0.6b use_dpo=true gradient_accumulation_steps=3 per_device_batch_size=3",
     "105.198781464576", "65.911104995328", "17.317308137472"},
    {"model_name=llama2-7b use_dpo=true mtp_num_layers=1", "116.10155594547201",
     "83.67455286067201", "4.535485464576"},
};

START_TEST(tflops_of_pairs_and_modules_ahead) {
    for (int i = 0; i < MX_COUNT(other_tflops); i++) {
        const MxJson *plan = run_json(mx_arena_printf(
            &arena,
            "--config configs/base.yml dataset_type=synthetic max_target_length=2048 packing=false "
            "per_device_batch_size=1 %s",
            other_tflops[i].words));
        ck_assert_str_eq(repr(json_number(plan, "tflops_per_device.total")), other_tflops[i].total);
        ck_assert_str_eq(repr(json_number(plan, "tflops_per_device.learnable")),
                         other_tflops[i].learnable);
        ck_assert_str_eq(repr(json_number(plan, "tflops_per_device.attention")),
                         other_tflops[i].attention);
    }
}
END_TEST

Suite *golden_suite(void) {
    Suite *s = suite_create("golden");
    suite_add(s, "parameters", parameters, 240);
    suite_add(s, "experts", experts, 120);
    suite_add(s, "counts", counts, 120);
    suite_add(s, "meshes", meshes, 120);
    suite_add(s, "tflops", tflops, 120);
    suite_add(s, "tflops_of_pairs_and_modules_ahead", tflops_of_pairs_and_modules_ahead, 60);
    suite_add(s, "sufficiency", sufficiency, 240);
    return s;
}
