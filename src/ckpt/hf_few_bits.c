/* hf_few_bits.c — what config.json says of weights that are published in few bits. Source:
 * transformers 5.24 utils/quantization_config.py. */
#include "hf.h"

#include <strings.h>

/* Ways that are known: quantization_config.quant_method and, where it has several, a member that
 * tells which, and what it is if it is missing. */
static const struct {
    const char *method, *member, *usual, *value;
    bool zeros_are_less; /* by one than what they stand for */
} ways[] = {
    {.method = "fp8"},
    {.method = "mxfp4"},
    {.method = "fbgemm_fp8"},
    {.method = "bitsandbytes"},
    {"gptq", "checkpoint_format", "gptq", "gptq", true},
    {"gptq", "checkpoint_format", "gptq", "gptq_v2", false},
    {"awq", "version", "gemm", "gemm", false},
    {"compressed-tensors", "format", NULL, "float-quantized", false},
    {"compressed-tensors", "format", NULL, "int-quantized", false},
    {"compressed-tensors", "format", NULL, "naive-quantized", false},
    {"compressed-tensors", "format", NULL, "pack-quantized", false},
    {"compressed-tensors", "format", NULL, "nvfp4-pack-quantized", false},
    {"compressed-tensors", "format", NULL, "mxfp4-pack-quantized", false},
    {"compressed-tensors", "format", NULL, "mxfp8-quantized", false},
};

static const char *text_of(const MxJson *value) {
    return value ? mx_json_string(value) : NULL;
}

/* What says how weights lie; of several groups of matrices the first that says it. */
static void read_sizes(const MxJson *how, MxHfModel *model) {
    mx_json_int(mx_json_get(how, "bits"), &model->code_bits);
    mx_json_int(mx_json_get(how, "group_size"), &model->scale_block[1]);
    const MxJson *groups = mx_json_get(how, "config_groups"), *weights;
    for (size_t i = 0; i < mx_json_length(groups); i++) {
        const char *name;
        MxJson *group;
        mx_json_member(groups, i, &name, &group);
        if (!(weights = mx_json_get(group, "weights"))) continue;
        mx_json_int(mx_json_get(weights, "num_bits"), &model->code_bits);
        mx_json_int(mx_json_get(weights, "group_size"), &model->scale_block[1]);
    }
}

bool hf_few_bits(const MxJson *how, MxHfModel *model) {
    const char *method = text_of(mx_json_get(how, "quant_method"));
    for (int i = 0; method && i < MX_COUNT(ways) && !model->few_bits; i++) {
        const char *said = ways[i].member ? text_of(mx_json_get(how, ways[i].member)) : NULL;
        if (!said) said = ways[i].usual;
        if (strcmp(method, ways[i].method) != 0) continue;
        if (ways[i].member && !(said && !strcasecmp(said, ways[i].value))) continue;
        model->few_bits = ways[i].method;
        model->zeros_are_less = ways[i].zeros_are_less;
    }
    if (model->few_bits) read_sizes(how, model);
    return model->few_bits != NULL;
}

const char *hf_few_bits_told(MxArena *arena, const MxJson *how) {
    const char *method = text_of(mx_json_get(how, "quant_method")), *member = NULL;
    MxText text;
    mx_text_init(&text, arena);
    mx_text_add(&text, "found quant_method %s", method ? method : "of none");
    for (int i = 0; method && i < MX_COUNT(ways); i++)
        if (!strcmp(method, ways[i].method)) member = ways[i].member;
    const char *said = member ? text_of(mx_json_get(how, member)) : NULL;
    if (member) mx_text_add(&text, " (%s %s)", member, said ? said : "missing");
    mx_text_add(&text, ", wanted ");
    for (int i = 0; i < MX_COUNT(ways); i++) {
        bool goes_on = i && !strcmp(ways[i].method, ways[i - 1].method);
        bool is_last = i + 1 == MX_COUNT(ways) || strcmp(ways[i].method, ways[i + 1].method) != 0;
        if (!goes_on) mx_text_add(&text, "%s%s", i ? ", " : "", ways[i].method);
        if (ways[i].value) mx_text_add(&text, "%s%s", goes_on ? ", " : " (", ways[i].value);
        if (ways[i].value && is_last) mx_text_add(&text, ")");
    }
    return text.data;
}
