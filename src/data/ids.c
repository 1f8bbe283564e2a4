/* ids.c — columns that hold token ids instead of texts: lists of whole numbers in JSON, Parquet and
 * Arrow, features of int64 in tf.train.Example. They are used as they stand: nothing is put before
 * or behind them. Source: MaxText input_pipeline/hf_data_processing.py, grain_data_processing.py
 * and input_pipeline_utils.py (ParseFeatures, KeepFeatures) @e591f30c. */
#include "ids.h"

bool ids_are_in(const Field *field) {
    return field->numbers || (field->json && !strcmp(field->kind, "a list"));
}

bool ids_are_meant(const Field *field) {
    double ignored;
    return field->numbers || (ids_are_in(field) && mx_json_length(field->json) > 0 &&
                              mx_json_number(mx_json_at(field->json, 0), &ignored));
}

/* Element i; false = it is no whole number, which *kind then names. */
static bool read_one(const Field *field, size_t i, int64_t *out, const char **kind) {
    if (field->numbers) {
        *out = field->numbers[i];
        return true;
    }
    const MxJson *value = mx_json_at(field->json, i);
    double number;
    *kind = mx_json_number(value, &number) ? "a number that is not whole" : mx_json_kind(value);
    return mx_json_int(value, out);
}

bool ids_read(MxArena *arena, const Field *field, const IdsFrom *from, MxTokens *out,
              MxError *err) {
    size_t n = field->numbers ? field->n_numbers : mx_json_length(field->json);
    *out = (MxTokens){.ids = mx_new_n(arena, int32_t, n + 1), .n = (int64_t)n};
    for (size_t i = 0; i < n; i++) {
        int64_t id = 0;
        const char *kind = NULL;
        if (!read_one(field, i, &id, &kind))
            return mx_fail(err, MX_EXIT_BAD_INPUT, from->where,
                           "column \"%s\": element %zu is %s, wanted the id of a token",
                           from->column, i, kind);
        if (id < 0 || id >= from->vocab)
            return mx_fail(err, MX_EXIT_BAD_INPUT, from->where,
                           "column \"%s\": element %zu is %lld, wanted the id of a token, 0 to "
                           "%lld (vocab_size=%lld)",
                           from->column, i, (long long)id, (long long)from->vocab - 1,
                           (long long)from->vocab);
        out->ids[i] = (int32_t)id;
    }
    return true;
}
