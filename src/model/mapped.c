/* mapped.c — learn to initialise (learn_to_init_mode): a student's projections of attention are not
 * learned themselves. Learned maps make them of the teacher's, C, which does not change: with two
 * maps of heads and of their widths
 *     query, key, value   W[d, u, v] = sum over x, y of C[d, x, y] A[x, u] B[y, v]
 *     out                 W[u, v, d] = sum over x, y of C[x, y, d] A[x, u] B[v, y]
 * or with a general one, W[x, y, u, v], in the place of A B. Behind the last step the products
 * become ordinary kernels.
 *
 * Shape letters: d model width; x, y heads of the teacher and their width; u, v the student's.
 * Source: MaxText layers/learn_to_init_layer.py @e591f30c. */
#include <mx/model.h>

#include "mapped.h"

#include <math.h>

bool model_has_maps(const MxConfig *c, int layer) {
    const MxYaml *layers = c->lti_layer_indices;
    if (!mx_config_learns_init(c)) return false;
    if (!layers || layers->kind == MX_YAML_NULL) return true;
    for (int i = 0; i < layers->n; i++)
        if (layers->item[i]->integer == layer) return true;
    return false;
}

/* ---- parameters */

/* As jax.nn.initializers.lecun_normal: the last two dims are those of a matrix, the others its
 * field. */
static int add_map(const Place *p, const char *name, const char *which, MxShape shape,
                   int n_contract) {
    static const char *const none[MX_MAX_RANK] = {NULL};
    int64_t fan_in = mx_shape_count(shape) / shape.dim[shape.rank - 1];
    return model_add(p, mx_path_join(p->arena, name, which), shape, n_contract, none,
                     model_fan_in(MX_INIT_TRUNCATED_NORMAL, fan_in));
}

Dense model_add_mapped(const Place *p, const Kernel *kernel) {
    Maps *maps = p->maps;
    const MxConfig *teacher = maps->config->teacher;
    bool is_out = kernel->n_contract == 2;
    bool is_of_kv = !strcmp(kernel->name, "key") || !strcmp(kernel->name, "value");
    int64_t x = is_of_kv ? teacher->num_kv_heads : teacher->num_query_heads;
    int64_t y = teacher->head_dim, u = kernel->shape.dim[!is_out],
            v = kernel->shape.dim[1 + !is_out];
    MxShape c =
        is_out ? MX_SHAPE(x, y, kernel->shape.dim[2]) : MX_SHAPE(kernel->shape.dim[0], x, y);
    Place frozen = *p, apart = *p;
    frozen.kind = MX_KIND_FROZEN;
    Mapped *made = &maps->item[maps->kernels.n];
    made->teacher = model_add(&frozen, mx_path_join(p->arena, kernel->name, "C"), c,
                              kernel->n_contract, kernel->axes, (MxInit){.kind = MX_INIT_ZEROS});
    made->map[1] = -1;
    if (maps->config->lti_use_general_linear_map) {
        made->map[0] = add_map(p, kernel->name, "W", MX_SHAPE(x, y, u, v), 2);
    } else {
        made->map[0] = add_map(p, kernel->name, "A", MX_SHAPE(x, u), 1);
        made->map[1] = add_map(p, kernel->name, "B", is_out ? MX_SHAPE(v, y) : MX_SHAPE(y, v), 1);
    }
    apart.tree = &maps->kernels;
    apart.ties = NULL;
    model_add(&apart, mx_path_join(p->arena, kernel->name, "kernel"), kernel->shape,
              kernel->n_contract, kernel->axes, kernel->init);
    return (Dense){.kernel = made->teacher, .bias = -1, .mapped = made};
}

/* ---- forward pass */

/* n of them, one behind the other. */
static MxValue repeat(MxTrace *t, MxValue x, int64_t n) {
    MxType type = mx_trace_type(t, x);
    MxShape one = {.rank = type.shape.rank + 1, .dim = {1}};
    for (int i = 0; i < type.shape.rank; i++) one.dim[i + 1] = type.shape.dim[i];
    MxInitAttr ones = {.type = {type.dtype, MX_SHAPE(n, 1)}, .fill = MX_FILL_CONSTANT, .value = 1};
    return mx_dot(t, mx_init(t, ones), mx_reshape(t, x, one), MX_DOT_NN, 1);
}

MxValue model_mapped(MxTrace *t, const MxModel *model, const MxValue *params,
                     const Mapped *mapped) {
    const MxDotAttr nn = {.kind = MX_DOT_NN, .n_contract = 1, .n_batch = 1};
    const MxDotAttr tn = {.kind = MX_DOT_TN, .n_contract = 1, .n_batch = 1};
    bool is_out = model->params.leaves[mapped->teacher].n_contract == 2;
    MxValue c = params[mapped->teacher], a = params[mapped->map[0]];
    if (mapped->map[1] < 0)
        return is_out ? mx_dot(t, a, c, MX_DOT_TN, 2) : mx_dot(t, c, a, MX_DOT_NN, 2);
    MxValue b = params[mapped->map[1]];
    MxValue half = is_out ? mx_dot(t, a, c, MX_DOT_TN, 1) : mx_dot(t, c, b, MX_DOT_NN, 1);
    int64_t n = mx_trace_type(t, half).shape.dim[0]; /* [u, y, d] or [d, x, v] */
    return is_out ? mx_batch_dot(t, repeat(t, b, n), half, nn)
                  : mx_batch_dot(t, repeat(t, a, n), half, tn);
}

/* ---- told to others */

const MxTree *mx_model_kernels(const MxModel *model) {
    return &model->maps.kernels;
}

bool mx_model_is_in_map(const MxModel *model, int param) {
    for (int i = 0; i < model->maps.kernels.n; i++) {
        const Mapped *made = &model->maps.item[i];
        if (param == made->teacher || param == made->map[0] || param == made->map[1]) return true;
    }
    return false;
}

int mx_model_taken(const MxModel *model, int kernel) {
    return model->maps.item[kernel].teacher;
}

MxValue mx_model_kernel(MxTrace *t, const MxModel *model, const MxValue *params, int kernel) {
    return model_mapped(t, model, params, &model->maps.item[kernel]);
}
