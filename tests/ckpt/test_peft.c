/* test_peft.c — adapters of every family as peft has them: the modules that transformers' models
 * have, products that are what merged weights have more than the base, and the way back; folders of
 * peft's own, by what transformers' models say with them. */
#include "tools.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const char shared[] = "lora.enable_lora=true dataset_type=synthetic steps=1 "
                             "max_target_length=16 eval_interval=-1 log_config=false "
                             "scan_layers=false base_output_directory={}";

/* ---- out and in again */

/* All matrices but those of groups; a router's scale is told by the block around it. */
static const char matrices[] = "lora.lora_module_path="
                               "(?!.*(norm|scale|conv1d|mhc|hc_head|o_a_proj|mlp$)).*";

static const struct {
    const char *model;
    bool has_other_names; /* its files do not have the names of modules */
    bool is_turned;       /* its experts are [inputs, outputs], and say so */
    bool is_rounded;      /* queries are scaled, by no power of two */
} families[] = {
    // clang-format off
    {.model = "llama", .is_rounded = true},
    {.model = "mistral", .is_rounded = true},
    {.model = "qwen2"},
    {.model = "qwen3"},
    {.model = "gemma2", .is_rounded = true},
    {.model = "gemma3_turns"},
    {.model = "gemma4_tiny"},
    {.model = "gemma4_experts"},
    {.model = "gemma4_small"},
    {.model = "olmo3_tiny"},
    {.model = "llama4_stretched"},
    {.model = "gpt_oss_tiny", .is_turned = true},
    {.model = "deepseek_v2_tiny"},
    {.model = "deepseek_v3_halves"},
    {.model = "deepseek_v32_tiny"},
    {.model = "deepseek_v4_tiny", .has_other_names = true},
    {.model = "qwen3_next_tiny"},
    {.model = "qwen3_5_tiny"},
    {.model = "qwen3_moe"},
    {.model = "mixtral", .has_other_names = true, .is_rounded = true},
    // clang-format on
};

enum { RANK = 2, SCALE = 2 };

/* A module of a folder, and the weights before and after merging. */
typedef struct Module {
    const char *name; /* of its weight, as transformers has it */
    bool has_experts, is_turned;
    int64_t rank, n_experts, size_a, size_b;
    const float *a, *b;
} Module;

static const float *read_floats(MxTensors *file, const char *name, MxShape *shape) {
    const MxTensor *tensor = mx_tensors_find(file, name);
    if (!tensor) return NULL;
    *shape = tensor->shape;
    float *out = mx_new_n(&arena, float, mx_shape_count(tensor->shape));
    ck_ok(mx_tensors_read(file, tensor, out, &err));
    return out;
}

/* The adapters of experts lie one around another: of what they read outside, … */
static Module read_module(MxTensors *file, const char *name, int family) {
    static const char head[] = "base_model.model.", inner[] = ".base_layer", experts[] = ".experts";
    Module m = {.rank = RANK};
    MxShape a, b;
    size_t n = strlen(name) - strlen("A.weight");
    m.a = read_floats(file, name, &a);
    m.b = read_floats(file, mx_arena_printf(&arena, "%.*sB.weight", (int)n, name), &b);
    ck_assert_msg(m.b && a.rank == 2 && b.rank == 2, "%s", name);
    char *module = mx_arena_strndup(&arena, name, n - strlen(".lora_"));
    bool is_inner = mx_text_has_suffix(module, inner);
    if (is_inner) module[strlen(module) - strlen(inner)] = '\0';
    m.has_experts = mx_text_has_suffix(module, experts);
    if (is_inner) m.rank *= 2; /* gates and what they multiply */
    m.is_turned = m.has_experts && families[family].is_turned;
    m.n_experts = a.dim[0] / m.rank;
    m.size_a = a.dim[1];
    m.size_b = b.dim[0];
    ck_assert_int_eq(a.dim[0], b.dim[1]);
    ck_assert(m.has_experts || m.n_experts == 1);
    m.name = mx_arena_printf(&arena, "%s.%s", module + strlen(head),
                             !m.has_experts ? "weight"
                             : is_inner     ? "gate_up_proj"
                                            : "down_proj");
    return m;
}

/* What its adapter adds to an element of its weight. */
static double delta_of(const Module *m, int64_t expert, int64_t row, int64_t column) {
    int64_t at_a = m->is_turned ? row : column, at_b = m->is_turned ? column : row;
    double sum = 0;
    for (int64_t k = 0; k < m->rank; k++)
        sum += (double)m->a[(expert * m->rank + k) * m->size_a + at_a] *
               (double)m->b[(at_b * m->rank + k) * m->n_experts + expert];
    return SCALE * sum;
}

/* A weight of one expert in files that have one for each; rows: of how many, from which on. */
static void check_values(const Module *m, MxTensors *base, MxTensors *merged, const char *name,
                         int64_t expert, int64_t from) {
    MxShape shape;
    const float *x = read_floats(base, name, &shape), *y = read_floats(merged, name, &shape);
    ck_assert_msg(x && y, "no %s", name);
    int64_t rows = shape.dim[shape.rank - 2], columns = shape.dim[shape.rank - 1];
    double worst = 0, most = 0;
    for (int64_t i = 0; i < mx_shape_count(shape); i++) {
        int64_t e = shape.rank == 3 ? i / (rows * columns) : expert;
        double delta = delta_of(m, e, from + i / columns % rows, i % columns);
        double off = fabs((double)y[i] - (double)x[i] - delta);
        worst = off > worst ? off : worst;
        most = fabs(delta) > most ? fabs(delta) : most;
    }
    bool is_idle = strstr(name, ".indexer."); /* what it chooses has no gradient */
    ck_assert_msg((most > 1e-6 || is_idle) && worst <= 1e-5 * (most + 1), "%s: off by %g of %g",
                  name, worst, most);
}

static void check_product(const Module *m, MxTensors *base, MxTensors *merged) {
    static const struct {
        const char *fused, *apart;
        int half;
    } halves[] = {{".gate_up_proj", ".gate_proj", 0},
                  {".gate_up_proj", ".up_proj", 1},
                  {".down_proj", ".down_proj", 0}};
    if (mx_tensors_find(base, m->name)) {
        check_values(m, base, merged, m->name, 0, 0);
        return;
    }
    ck_assert_msg(m->has_experts, "no %s", m->name);
    for (int h = 0; h < MX_COUNT(halves); h++)
        for (int e = 0; e < (int)m->n_experts; e++) {
            if (!mx_text_has_suffix(m->name, halves[h].fused)) continue;
            size_t n = strlen(m->name) - strlen(halves[h].fused);
            const char *name =
                mx_arena_printf(&arena, "%.*s.%d%s.weight", (int)n, m->name, e, halves[h].apart);
            check_values(m, base, merged, name, e, halves[h].half * m->size_b / 2);
        }
}

/* The row of a module in the list of transformers' models. */
static const char *row_of(const Module *m, const char *model) {
    static const char mark[] = "layers.";
    const char *layer = strstr(m->name, mark), *name = m->name;
    if (layer)
        name = mx_arena_printf(&arena, "%.*s*%s", (int)(layer + strlen(mark) - name), name,
                               strchr(layer + strlen(mark), '.'));
    int64_t rows = m->is_turned ? m->size_a : m->size_b;
    const char *experts =
        m->has_experts ? mx_arena_printf(&arena, "%lld ", (long long)m->n_experts) : "";
    return mx_arena_printf(&arena, "%s\t%s\t%s%lld %lld", model, name, experts, (long long)rows,
                           (long long)(m->is_turned ? m->size_b : m->size_a));
}

/* Which modules transformers' model has: all of them, and no other. */
static void check_rows(MxMap *found, const char *model) {
    MxBytes list;
    const char *path = goldens_need(&arena, "hf/modules.tsv");
    ck_ok(mx_file_read(&arena, path, 1 << 20, &list, &err));
    char *save = NULL, *text = mx_arena_strndup(&arena, (const char *)list.data, list.size);
    int n = 0;
    for (char *row = strtok_r(text, "\n", &save); row; row = strtok_r(NULL, "\n", &save)) {
        size_t length = strlen(model);
        if (strncmp(row, model, length) || row[length] != '\t') continue;
        bool is_found = mx_map_get(found, row, -1) >= 0;
        ck_assert_msg(is_found != (strstr(row, "o_a_proj") != NULL), "%s", row);
        n += is_found;
    }
    ck_assert_int_gt(n, 0);
    ck_assert_int_eq(n, (int)found->count);
}

static const char *find_model(const char *name) {
    return goldens_find(&arena, mx_path_join(&arena, "hf/models", name));
}

START_TEST(families_go_around) {
    const char *model = families[_i].model, *base = find_model(model);
    if (!base) return;
    ck_tool(0, "mxconvert %s {}/hf.h5", base);
    const char *run = mx_arena_printf(
        &arena,
        "mxtrain --config {}/hf.yml load_parameters_path=%s lora.lora_rank=%d lora.lora_alpha=%d "
        "%s %s",
        base, RANK, RANK * SCALE, matrices, shared);
    ck_tool(0, "%s run_name=a learning_rate=0.3", run);
    ck_tool(0, "mxconvert {}/a {}/peft --to-peft");
    ck_tool(0, "mxconvert {}/a {}/merged --merge-lora --to-hf --dtype float32");
    ck_tool(0, "mxconvert %s {}/plain", base);
    ck_tool(0, "mxconvert {}/plain {}/base --to-hf --dtype float32");
    MxTensors *file, *weights, *merged;
    MxMap found;
    mx_map_init(&found, &arena);
    ck_ok(mx_tensors_open(&arena, in_folder("peft/adapter_model.safetensors"), &file, &err));
    ck_ok(mx_tensors_open(&arena, in_folder("base/model.safetensors"), &weights, &err));
    ck_ok(mx_tensors_open(&arena, in_folder("merged/model.safetensors"), &merged, &err));
    for (int i = 0; i < mx_tensors_count(file); i++) {
        const char *name = mx_tensors_at(file, i)->name;
        if (!mx_text_has_suffix(name, ".lora_A.weight")) continue;
        Module m = read_module(file, name, _i);
        mx_map_set(&found, row_of(&m, model), i);
        if (!families[_i].has_other_names) check_product(&m, weights, merged);
    }
    check_rows(&found, model);
    ck_tool(0, "%s run_name=b learning_rate=0 lora.lora_restore_path={}/peft", run);
    ck_tool(0, "mxconvert {}/a {}/a.h5 --extract-lora");
    ck_tool(0, "mxconvert {}/b {}/b.h5 --extract-lora");
    ck_tool(0, "mxcompare {}/a.h5 {}/b.h5 --rtol %s", families[_i].is_rounded ? "2e-7" : "0");
    ck_says("EQUAL");
}
END_TEST

/* Three kernels of theirs are one of ours: each has the A of all. */
START_TEST(parts_have_their_own_module) {
    const char *base = hf_model("qwen2");
    ck_tool(0, "mxconvert %s {}/hf.h5", base);
    const char *run = mx_arena_printf(
        &arena,
        "mxtrain --config {}/hf.yml load_parameters_path=%s fused_qkv=true fused_mlp=true "
        "lora.lora_rank=2 lora.lora_alpha=4 "
        "lora.lora_module_path=.*(qkv_proj|wi|wo) %s",
        base, shared);
    ck_tool(0, "%s run_name=a learning_rate=0.3", run);
    ck_tool(0, "mxconvert {}/a {}/peft --to-peft");
    ck_tool(0, "%s run_name=b learning_rate=0 lora.lora_restore_path={}/peft", run);
    ck_tool(0, "mxconvert {}/a {}/a.h5 --extract-lora");
    ck_tool(0, "mxconvert {}/b {}/b.h5 --extract-lora");
    ck_tool(0, "mxcompare {}/a.h5 {}/b.h5");
    ck_says("EQUAL");
    MxTensors *file;
    MxShape shape;
    ck_ok(mx_tensors_open(&arena, in_folder("peft/adapter_model.safetensors"), &file, &err));
    static const char name[] = "base_model.model.model.layers.1.self_attn.%c_proj.lora_A.weight";
    const float *q = read_floats(file, mx_arena_printf(&arena, name, 'q'), &shape);
    const float *v = read_floats(file, mx_arena_printf(&arena, name, 'v'), &shape);
    ck_assert(q && v && !memcmp(q, v, (size_t)mx_shape_count(shape) * sizeof *q));
}
END_TEST

/* transformers makes a model that sees of such a folder, or the text model alone. */
static const struct {
    const char *model, *module;
} seeing[] = {
    {"hf/models/gemma3_images", "model.language_model.layers.1.self_attn.q_proj"},
    {"images/gemma4_sees", "model.language_model.layers.1.self_attn.q_proj"},
    {"images/llama4_sees", "model.layers.1.self_attn.q_proj"},
    {"images/qwen3_vl_sees", "model.language_model.layers.1.self_attn.q_proj"},
};

START_TEST(text_models_within_others) {
    const char *base = goldens_need(&arena, seeing[_i].model), *module = seeing[_i].module;
    ck_tool(0, "mxconvert %s {}/hf.h5", base);
    const char *run = mx_arena_printf(
        &arena,
        "mxtrain --config {}/hf.yml load_parameters_path=%s lora.lora_rank=2 lora.lora_alpha=4 "
        "lora.lora_module_path=.*query %s",
        base, shared);
    ck_tool(0, "%s run_name=a learning_rate=0.3", run);
    ck_tool(0, "mxconvert {}/a {}/peft --to-peft");
    MxTensors *file;
    ck_ok(mx_tensors_open(&arena, in_folder("peft/adapter_model.safetensors"), &file, &err));
    const char *tensor = mx_arena_printf(&arena, "base_model.model.%s.lora_A.weight", module);
    ck_assert_msg(mx_tensors_find(file, tensor), "no %s", tensor);
    MxBytes bytes = content("peft/adapter_config.json");
    const char *text = mx_arena_strndup(&arena, (const char *)bytes.data, bytes.size);
    bool is_alone = mx_text_has_prefix(module, "model.layers.");
    ck_assert(!strstr(text, mx_arena_printf(&arena, "\"%s\"", module)) == is_alone);
    ck_tool(0, "%s run_name=b learning_rate=0 lora.lora_restore_path={}/peft", run);
    ck_tool(0, "mxconvert {}/a {}/a.h5 --extract-lora");
    ck_tool(0, "mxconvert {}/b {}/b.h5 --extract-lora");
    ck_tool(0, "mxcompare {}/a.h5 {}/b.h5 --rtol 2e-7");
    ck_says("EQUAL");
}
END_TEST

/* ---- names in configs */

static const struct {
    const char *model, *modules;
    const char *says[4]; /* of adapter_config.json */
} configs[] = {
    {"qwen2", ".*self_attention/(query|value)", {"\"q_proj\",\n  \"v_proj\"\n ]"}},
    {"qwen2", ".*layers_1/.*query", {"\"1.self_attn.q_proj\"\n ]"}},
    {"deepseek_v3_halves",
     ".*(shared_experts|wi_[01]|gate)",
     {"\"target_modules\": [],", "\"gate_up_proj\"\n ]", "\"gate_up_proj\": 4",
      " \"gate_proj.weight\",\n  \"up_proj.weight\",\n  \"gate.weight\","}},
    {"deepseek_v3_halves",
     ".*wo",
     {"\"target_parameters\"", "\"down_proj.weight\"", "\"down_proj\""}},
};

START_TEST(configs_name_modules) {
    const char *base = hf_model(configs[_i].model);
    ck_tool(0, "mxconvert %s {}/hf.h5", base);
    ck_tool(0,
            "mxtrain --config {}/hf.yml load_parameters_path=%s lora.lora_rank=2 lora.lora_alpha=4 "
            "lora.lora_module_path=%s run_name=a %s",
            base, configs[_i].modules, shared);
    ck_tool(0, "mxconvert {}/a {}/peft --to-peft");
    MxBytes bytes = content("peft/adapter_config.json");
    const char *text = mx_arena_strndup(&arena, (const char *)bytes.data, bytes.size);
    for (int i = 0; i < MX_COUNT(configs[_i].says) && configs[_i].says[i]; i++)
        ck_assert_msg(strstr(text, configs[_i].says[i]), "%s: %s", configs[_i].says[i], text);
}
END_TEST

/* ---- folders of peft's */

static const struct {
    const char *name, *model;
    int rank; /* that ours need: one for each of their modules that is a part of a kernel */
    const char *modules;
} pefts[] = {
    {"deepseek_v3", "deepseek_v3_halves", 1,
     "(?!.*norm).*(self_attention/.*|/MoeBlock_0/.*|shared_experts/w(i_0|o)|mlp/wi_1)"},
    {"qwen3_5", "qwen3_5_tiny", 2,
     ".*(in_proj_qkvz|in_proj_ba|out_proj|query|shared_expert_gate|routed_experts/wo)"},
    {"gpt_oss", "gpt_oss_tiny", 1, "(?!.*norm).*(Attention/.*|GptOssMlp/.*)"},
    {"llama4", "llama4_stretched", 1, ".*(query|key|MoeBlock_0/w.*)"},
    {"llama_layers", "llama_stretched", 1, ".*(query|out|wo)"}, /* in one of two layers */
    {"mistral_patterns", "mistral_short", 3,
     ".*(query|value|out|wi_1|wo)"}, /* of any rank, alpha */
};

/* restore  NULL = the golden folder */
static const char *start(int i, int rank, const char *name, const char *restore) {
    if (!restore) restore = goldens_need(&arena, mx_path_join(&arena, "hf/peft", pefts[i].name));
    return mx_arena_printf(&arena,
                           "mxtrain --config {}/hf.yml load_parameters_path=%s run_name=%s "
                           "learning_rate=0 lora.lora_rank=%d lora.lora_alpha=%d "
                           "lora.lora_module_path=%s lora.lora_restore_path=%s %s",
                           hf_model(pefts[i].model), name, rank, 2 * rank, pefts[i].modules,
                           restore, shared);
}

/* What a run says behind the prompt, beside what transformers' model says with the same adapters.
 */
static void check_logits(int i, const char *run) {
    static const char prompt[] = "[5, 9, 3, 6, 7, 8, 2, 4, 3, 11]\n";
    const char *expected =
        goldens_need(&arena, mx_arena_printf(&arena, "hf/peft/%s/expected.h5", pefts[i].name));
    put_content("p.jsonl", prompt, strlen(prompt));
    ck_tool(0, "mxdecode {}/%s --prompts {}/p.jsonl --logits {}/x.h5 --dtype float32", run);
    ck_tool(0, "mxcompare --logits {}/x.h5 %s --max-kl 1e-9", expected);
    ck_tool(0, "mxdecode %s --prompts {}/p.jsonl --logits {}/y.h5 --dtype float32",
            hf_model(pefts[i].model));
    ck_tool(1, "mxcompare --logits {}/y.h5 %s --max-kl 1e-4", expected); /* without them */
}

START_TEST(models_say_the_same) {
    ck_tool(0, "mxconvert %s {}/hf.h5", hf_model(pefts[_i].model));
    ck_tool(0, "%s", start(_i, pefts[_i].rank, "a", NULL));
    check_logits(_i, "a");
    ck_tool(0, "mxconvert {}/a {}/again --to-peft"); /* and once more around */
    ck_tool(0, "mxconvert {}/a {}/a.h5 --extract-lora");
    ck_tool(0, "%s", start(_i, pefts[_i].rank, "b", "{}/again"));
    ck_tool(0, "mxconvert {}/b {}/b.h5 --extract-lora");
    ck_tool(0, "mxcompare {}/a.h5 {}/b.h5");
    ck_says("EQUAL");
}
END_TEST

enum { QWEN3_5 = 1 };

START_TEST(ranks_are_as_many_as_needed) {
    ck_tool(0, "mxconvert %s {}/hf.h5", hf_model(pefts[QWEN3_5].model));
    ck_tool(65, "%s", start(QWEN3_5, 1, "a", NULL));
    ck_says("its adapters have rank 2 together in ");
    ck_says("hint: lora.lora_rank=2 lora.lora_alpha=4");
    ck_tool(0, "%s", start(QWEN3_5, 5, "b", NULL)); /* others add nothing, and can be trained */
    check_logits(QWEN3_5, "b");
}
END_TEST

static const struct {
    const char *tensor, *says, *hint;
} refused[] = {
    {"layers.1.mlp.experts.0.gate_proj.lora_A.weight",
     "adapters of each expert apart are not available here", "peft with transformers 5 reads them"},
    {"embed_tokens.base_layer.weight", "belongs to no module that is adapted here",
     "save_embedding_layers=False"},
};

START_TEST(tensors_that_are_refused) {
    const char *config = goldens_need(&arena, "hf/peft/deepseek_v3/adapter_config.json");
    const float values[2] = {0};
    MxTensorData tensor = {mx_arena_printf(&arena, "base_model.model.model.%s", refused[_i].tensor),
                           MX_SHAPE(1, 2), values};
    MxBytes text;
    ck_ok(mx_file_read(&arena, config, 1 << 20, &text, &err));
    ck_ok(mx_dir_make(in_folder("peft"), &err));
    put_content("peft/adapter_config.json", text.data, text.size);
    ck_ok(mx_tensors_write(in_folder("peft/adapter_model.safetensors"), &tensor, 1, &err));
    ck_tool(0, "mxconvert %s {}/hf.h5", hf_model(pefts[0].model));
    ck_tool(65, "%s", start(0, 1, "a", "{}/peft"));
    ck_says(refused[_i].says);
    ck_says(refused[_i].hint);
}
END_TEST

Suite *peft_suite(void) {
    Suite *suite = suite_create("ckpt/peft");
    TCase *tcase = add_case(suite, "families");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, families_go_around, 0, MX_COUNT(families));
    tcase_set_long(tcase);
    tcase = add_case(suite, "modules");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, parts_have_their_own_module);
    tcase_add_loop_test(tcase, text_models_within_others, 0, MX_COUNT(seeing));
    tcase_add_loop_test(tcase, configs_name_modules, 0, MX_COUNT(configs));
    tcase = add_case(suite, "folders of peft's");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, models_say_the_same, 0, MX_COUNT(pefts));
    tcase_add_test(tcase, ranks_are_as_many_as_needed);
    tcase_add_loop_test(tcase, tensors_that_are_refused, 0, MX_COUNT(refused));
    return suite;
}
