/* shard.h — which rank holds which part of an array: meshes of devices, ordered rules from logical
 * axis names to mesh axes, the resulting PartitionSpecs with explanations, and the resulting boxes.
 * Everything here is a pure function of plain structs. Other rooms provide rules, sizes and models,
 * and decide how to handle findings.
 *
 * Words: an *axis* is a logical name ("embed"), a *dim* a position in a shape, a *mesh axis* a
 * direction of the devices ("fsdp"), a *spec* one list of mesh axes per dim (PartitionSpec), a
 * *rank* a device's number, row-major over the mesh axes. Behaviour is flax.linen's and MaxText's
 * (src/maxtext/utils/sharding.py @e591f30c); tests/golden/sharding has their actual results. */
#ifndef MX_SHARD_H
#define MX_SHARD_H

#include <mx/base.h>

/* ---- mesh */

/* Devices in a grid. Axis 0 is the slowest: rank = ((c0 * size1 + c1) * size2 + c2) … */
typedef struct MxMesh {
    int n;
    const char *const *axes; /* [n] */
    const int64_t *sizes;    /* [n], each at least 1 */
    int64_t n_ranks;         /* their product */
    const int64_t *slices;   /* [n] number of slices (dcn) along each axis: the first digit of a
                                coordinate is the slice. NULL = there is one slice */
} MxMesh;

/* MaxText's twelve mesh axes, in the order of its device grid. */
enum { MX_MESH_DEFAULT_COUNT = 12 };
extern const char *const mx_mesh_default_axes[MX_MESH_DEFAULT_COUNT];

/* One key of the config: ici_fsdp_parallelism=-1 is {-1, "ici_fsdp_parallelism", where}. */
typedef struct MxParallelism {
    int64_t size;
    const char *key;
    MxWhere where;
} MxParallelism;

typedef struct MxMeshInput {
    int n;
    const char *const *axes;
    const MxParallelism *ici; /* [n] inside a slice */
    const MxParallelism *dcn; /* [n] between slices; NULL = 1 each */
    int64_t n_devices;        /* 0 = unknown (planning): each -1 counts as 1 */
    int64_t n_slices;         /* 0 = the product of dcn */
    MxWhere where;            /* line of mesh_axes */
} MxMeshInput;

/* mx_mesh_new — a mesh from names and effective sizes. Names are kept, not copied.
 * Errors (all with exit 2): a name twice, a size below 1, more ranks than an int64 counts.
 * Test: tests/shard/test_mesh.c. */
bool mx_mesh_new(MxArena *arena, const char *const *axes, const int64_t *sizes, int n, MxMesh *out,
                 MxError *err);
/* mx_mesh_from_parallelism — effective size = ici * dcn, after the -1 in each list is filled: in
 * dcn from the slices, in ici from the devices of a slice. Without n_slices, dcn's product is the
 * number of slices, and its -1 is the number of devices divided by ici's product (1 if ici has a -1
 * too). So one slice gives MaxText's result, and several need no further key. Errors: two -1 in a
 * list, a size that is 0 or below -1, a product that is not the number of devices or slices; the
 * message names the kind, the keys and the numbers. Source: MaxText
 * max_utils.fill_unspecified_mesh_axes. Test: tests/shard/test_mesh.c. */
bool mx_mesh_from_parallelism(MxArena *arena, const MxMeshInput *in, MxMesh *out, MxError *err);
/* mx_mesh_find — the mesh axis' position or -1. mx_mesh_size — its size, 1 if the mesh lacks it. */
int mx_mesh_find(const MxMesh *mesh, const char *axis);
int64_t mx_mesh_size(const MxMesh *mesh, const char *axis);
/* mx_mesh_coord — the coordinate of a rank along mesh axis `axis` (a position in mesh->axes). */
int64_t mx_mesh_coord(const MxMesh *mesh, int64_t rank, int axis);
/* mx_mesh_slices — the number of slices that some mesh axes span. mx_mesh_slice — the slice that a
 * rank is in; mx_mesh_place — its number there. */
int64_t mx_mesh_slices(const MxMesh *mesh, uint32_t axes);
int64_t mx_mesh_slice(const MxMesh *mesh, int64_t rank);
int64_t mx_mesh_place(const MxMesh *mesh, int64_t rank);
/* mx_mesh_fsdp — the mesh axes of FSDP above size 1, as bits. */
uint32_t mx_mesh_fsdp(const MxMesh *mesh);
/* mx_mesh_stages — the mesh axis of pipeline stages, as a bit; 0 = none. It divides layers, never
 * arrays. */
uint32_t mx_mesh_stages(const MxMesh *mesh);
/* mx_mesh_replicas — the mesh axis of replicas that train independently (diloco), as a bit; 0 =
 * none. It divides no arrays; values may differ along it. */
uint32_t mx_mesh_replicas(const MxMesh *mesh);
/* mx_mesh_text — "data=2,fsdp=4", without axes of size one; "one device" if there are no others. */
const char *mx_mesh_text(MxArena *arena, const MxMesh *mesh);

/* ---- rules */

/* [axis, mesh axes]. No mesh axes (null or []) binds the axis as replicated. */
typedef struct MxRule {
    const char *axis; /* NULL = null in the list: never applies */
    int n;
    const char *const *mesh_axes; /* [n], most significant first */
    MxWhere where;
} MxRule;

/* An ordered list of rules, indexed by name. Immutable. */
typedef struct MxRules {
    const MxRule *rule; /* [n] */
    int n;
    const int *next; /* [n] next rule of the same axis, -1 = none */
    MxMap first;     /* axis to its first rule */
} MxRules;

/* mx_rules_new — the list as given; strings are kept. O(n). */
MxRules mx_rules_new(MxArena *arena, const MxRule *list, int n);
/* mx_rules_concat — `first` before `second`; rules attached to a variable come before the run's. */
MxRules mx_rules_concat(MxArena *arena, const MxRules *first, const MxRules *second);

/* ---- specs */

/* One dim's entry: no mesh axes is None, one is that axis, several are a tuple. "*" alone is
 * UNCONSTRAINED; NULL inside a tuple is None there. */
typedef struct MxSpecDim {
    int n;
    bool is_name; /* the only string is a logical axis that is not resolved yet */
    const char *const *axes;
    const MxRule *rule; /* the rule that bound this dim, NULL = none; messages name its line */
} MxSpecDim;

/* A PartitionSpec, or an array's logical names. P() and P(None) differ; rank -1 is no spec. */
typedef struct MxSpec {
    int rank;
    const MxSpecDim *dim; /* [rank] */
} MxSpec;

/* mx_spec_names — logical names of an array's dims, NULL = never sharded. Strings are kept. */
MxSpec mx_spec_names(MxArena *arena, const char *const *axes, int rank);
/* mx_spec_text — "None|fsdp|(tensor,expert)"; "<empty>" for rank 0, "<none>" for rank -1. */
const char *mx_spec_text(MxArena *arena, MxSpec spec);
/* mx_spec_python — as Python prints it: "P('fsdp', None, ('tensor', 'expert'))". */
const char *mx_spec_python(MxArena *arena, MxSpec spec);
/* mx_spec_uses — whether some dim uses this mesh axis. */
bool mx_spec_uses(MxSpec spec, const char *mesh_axis);
/* mx_spec_insert — names of a stacked array: `axis` as a new entry at `at` with Python's
 * list.insert semantics (past the end appends, negative counts from the end), unless it is already
 * there. Source: MaxText get_nnx_var_named_sharding_with_scan_axis. Test:
 * tests/shard/test_resolve.c. */
MxSpec mx_spec_insert(MxArena *arena, MxSpec names, const char *axis, int at);

/* ---- resolution */

typedef enum MxVerdict {
    MX_RULE_TAKEN,    /* binds the dim */
    MX_RULE_TOO_LATE, /* the dim is already bound */
    MX_RULE_BLOCKED,  /* one of its mesh axes is used for another dim: skipped */
} MxVerdict;

/* The verdict on one rule whose name occurs in the array. */
typedef struct MxTrailStep {
    int rule, dim; /* positions in rules and names */
    MxVerdict verdict;
    const char *mesh_axis; /* blocked: the first mesh axis that is already used … */
    int holder;            /* … and the dim that uses it */
} MxTrailStep;

/* Every step of one resolution, in the order of the rules. Start from {.arena = …}. */
typedef struct MxTrail {
    MxArena *arena;
    MxTrailStep *steps;
    int n, cap;
} MxTrail;

/* mx_shard_resolve — logical names to a spec, before anything is known about the mesh.
 *   names  entries with is_name are resolved; others are unchanged, and their mesh axes count as
 *          used
 *   trail  filled unless NULL
 *   out    names.rank entries
 * Rules in list order; the first whose name occurs, whose dim is still open and whose mesh axes are
 * all unused binds the dim. No mesh axes binds it as replicated, which ends its fallbacks. Names
 * that no rule binds are replicated. Sizes do not matter: divisibility is checked afterwards and
 * never changes the choice. O(rank * rules of these names), whatever the length of the list.
 * Errors: a name twice in one array. Mesh axes are not checked here. Source:
 * flax.linen.logical_to_mesh_axes. Test: golden rules/cases.tsv, tests/shard/property.c. */
bool mx_shard_resolve(MxArena *arena, const MxRules *rules, MxSpec names, MxTrail *trail,
                      MxSpec *out, MxError *err);
/* mx_shard_clean — removes mesh axes that have size one or that the mesh lacks; keeps the number of
 * entries. Source: MaxText remove_size_one_mesh_axis. Test: golden remove_size_one.tsv. */
MxSpec mx_shard_clean(MxArena *arena, const MxMesh *mesh, MxSpec spec);
/* mx_shard_check — checks a spec against the mesh: all axes must exist, none may occur twice.
 *   path  the array's name for the message
 * If a spec has both faults, the message names the repeated axis. Source:
 * jax.sharding.NamedSharding. Test: golden rules/cases.tsv, column named_sharding. */
bool mx_shard_check(const MxMesh *mesh, MxSpec spec, const char *path, MxError *err);

/* A parameter as the model describes it. */
typedef struct MxVariable {
    MxSpec names;          /* rank 0 = no annotation: replicated */
    const char *partition; /* logical name of the stacking dim, NULL = not stacked */
    int scan_axis;         /* its position (param_scan_axis) */
    const MxRules *local;  /* its own rules, tried before the run's; NULL = none */
} MxVariable;

typedef struct MxResolved {
    MxSpec names; /* with the scan axis */
    MxSpec raw;   /* resolved */
    MxSpec spec;  /* and cleaned */
} MxResolved;

/* mx_shard_resolve_variable — inserts the scan axis, resolves, and cleans. Without any rules the
 * names themselves are mesh axes. If there are fewer names than dims, the spec has as few entries.
 * Source: MaxText get_nnx_var_named_sharding_with_scan_axis. Test: tests/shard/test_resolve.c. */
bool mx_shard_resolve_variable(MxArena *arena, const MxVariable *variable, const MxRules *rules,
                               const MxMesh *mesh, MxResolved *out, MxError *err);

/* ---- findings: what flax does not report */

typedef enum MxFindingKind {
    MX_FIND_FALLBACK,     /* a rule was skipped, and a later one of the same axis was used */
    MX_FIND_CONFLICT,     /* a rule was skipped, and no other one was used */
    MX_FIND_NO_RULE,      /* no rule names the axis: replicated; strict if a mesh axis (other than
                             diloco, data, autoregressive) is then unused */
    MX_FIND_ABSENT_AXIS,  /* the mesh lacks a mesh axis that MaxText's meshes have: size one */
    MX_FIND_UNKNOWN_AXIS, /* an unrecognized mesh axis */
    MX_FIND_EMPTY_AXIS,   /* '' as a mesh axis */
    MX_FIND_TWICE,        /* a mesh axis twice in one rule */
} MxFindingKind;

typedef struct MxFinding {
    MxFindingKind kind;
    bool is_strict;     /* an error with sharding_strict */
    bool costs;         /* on this mesh the dim is not sharded along a mesh axis of size > 1 */
    int dim;            /* -1 = only about the rule */
    const MxRule *rule; /* NULL = none */
    MxWhere where;      /* its line */
    const char *text;   /* complete except for where and the array's name */
    const char *hint;   /* NULL = none */
} MxFinding;

typedef struct MxFindings {
    MxFinding *items;
    int n, cap;
} MxFindings;

/* mx_shard_findings — the rules that were skipped in the resolution of one array, in order, then
 * names without a rule. `trail` is that of mx_shard_resolve for these names. Test:
 * tests/shard/test_explain.c. */
void mx_shard_findings(MxArena *arena, const MxRules *rules, MxSpec names, const MxTrail *trail,
                       const MxMesh *mesh, MxFindings *out);
/* mx_rules_findings — mesh axes in the rules that are unknown, absent, empty or repeated. */
void mx_rules_findings(MxArena *arena, const MxRules *rules, const MxMesh *mesh, MxFindings *out);
/* mx_findings_fail — reports the strict ones as errors (exit 2, where = the rule's line, `path` =
 * the array's name or NULL); true if there are none. */
bool mx_findings_fail(const MxFindings *findings, const char *path, MxError *err);

/* An array with its spec. */
typedef struct MxShardArray {
    const char *path;
    MxDtype dtype;
    MxShape shape; /* global, elements */
    MxSpec spec;   /* at most shape.rank entries; missing ones are None */
} MxShardArray;

/* mx_shard_explain — dim by dim: size, the rules that were considered, which one won, which lost
 * and to which rule; then the warnings. For bare names leave array->path NULL (shape.rank 0 = sizes
 * unknown); array->spec has the names. Errors: those of mx_shard_resolve. Test:
 * tests/shard/test_explain.c. */
bool mx_shard_explain(MxArena *arena, const MxRules *rules, const MxMesh *mesh,
                      const MxShardArray *array, MxText *out, MxError *err);

/* ---- shapes of shards */

/* mx_shard_parts — the number of parts of a dim: the product of its mesh axes' sizes. */
int64_t mx_shard_parts(const MxMesh *mesh, const MxSpecDim *dim);
/* mx_shard_shape — the shape of one rank's part. Errors: a spec longer than the shape; a dim that
 * cannot be divided (tensor, dim, sizes, and where = the rule's line). Source:
 * NamedSharding.shard_shape. Test: golden pure_shard_shape.tsv. */
bool mx_shard_shape(const MxMesh *mesh, const MxShardArray *array, MxShape *out, MxError *err);
/* mx_shard_adjust — removes the mesh axes that do not divide their dim: from the most significant
 * on, each axis that still divides is kept. Source: MaxText adjust_pspec_for_indivisible_shapes.
 * Test: golden pure_adjust_indivisible.tsv. */
MxSpec mx_shard_adjust(MxArena *arena, const MxMesh *mesh, const MxShardArray *array);
/* mx_shard_add_data — ZeRO-1: puts "data" before the axes of the first dim whose shard is divisible
 * by data's size and that "tensor" does not cut. The result has one entry per dim; an array that
 * already uses "data" is unchanged (upstream intends this, but fails). Errors: those of
 * mx_shard_shape. Source: MaxText add_data_to_sharding. Test: golden pure_zero1_add_data.tsv. */
bool mx_shard_add_data(MxArena *arena, const MxMesh *mesh, const MxShardArray *array, MxSpec *out,
                       MxError *err);

/* ---- boxes. Specs here have passed mx_shard_check on their mesh. */

typedef struct MxLayout {
    const MxMesh *mesh;
    MxSpec spec;
} MxLayout;

/* mx_shard_box — the box of one rank. A dim that cannot be divided evenly is cut so that sizes
 * differ by at most one, larger parts first; parts beyond the size are empty. Boxes of ranks that
 * differ only along unused mesh axes are equal (replicas); the others tile the array. Test:
 * tests/shard/property.c. */
MxBox mx_shard_box(MxLayout layout, MxShape shape, int64_t rank);

/* ---- whether a model is sharded enough */

typedef struct MxTolerance {
    double fraction; /* sharding_tolerance */
    MxWhere where;
} MxTolerance;

typedef struct MxShardReport {
    int n_unsharded;
    int64_t unsharded_elements, total_elements, total_bytes;
    double fraction; /* unsharded_elements / total_elements */
} MxShardReport;

/* mx_shard_sufficient — fails when more than `tolerance` of all elements are in arrays that are not
 * sharded along at least one of the relevant mesh axes (fsdp, fsdp_transpose, sequence, context,
 * context_usp_ulysses, context_autoregressive, tensor, tensor_sequence, stage, expert, if larger
 * than one). Passes if there are none.
 *   report  filled unless NULL, on failure too; specs are cleaned ones
 * Errors: the fraction and the five largest such arrays; no elements at all. Source: MaxText
 * assert_params_sufficiently_sharded, whose total is in bytes; here it is in elements. Test: golden
 * cost/sharding_check.tsv. */
bool mx_shard_sufficient(const MxMesh *mesh, const MxShardArray *arrays, int n,
                         MxTolerance tolerance, MxShardReport *report, MxError *err);

#endif
