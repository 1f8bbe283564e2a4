/* pickle.c — the pickle of a dictionary of tensors, as torch.save writes it: a program for a
 * machine with a stack, of which the few instructions are understood that such a dictionary needs,
 * and the few names that it calls. Nothing is looked up or run; any other instruction or name is
 * refused by its name. Source: Python 3.13, Lib/pickletools.py; torch 2.15, torch/_utils.py. */
#include "pickle.h"

static const char *const kind_names[] = {"nothing",  "a truth",      "a number", "a text",
                                         "a tuple",  "a dictionary", "a name",   "a storage",
                                         "a tensor", "a mark"};

static const Name names[] = {
    {"collections", "OrderedDict", CALLS_DICT, 0},
    {"torch._utils", "_rebuild_tensor_v2", CALLS_TENSOR, 0},
    {"torch._utils", "_rebuild_parameter", CALLS_PARAMETER, 0},
    {"torch", "FloatStorage", IS_STORAGE, MX_F32},
    {"torch", "BFloat16Storage", IS_STORAGE, MX_BF16},
    {"torch", "HalfStorage", IS_STORAGE, MX_F16},
    {"torch", "DoubleStorage", IS_STORAGE, MX_F64},
    {"torch", "LongStorage", IS_STORAGE, MX_I64},
    {"torch", "IntStorage", IS_STORAGE, MX_I32},
    {"torch", "ShortStorage", IS_STORAGE, MX_U16}, /* only passed over: elements of that size */
    {"torch", "CharStorage", IS_STORAGE, MX_I8},
    {"torch", "ByteStorage", IS_STORAGE, MX_U8},
    {"torch", "BoolStorage", IS_STORAGE, MX_U8},
};

static bool run_global(Machine *m) {
    const char *module, *name;
    if (!pickle_take_line(m, &module) || !pickle_take_line(m, &name)) return false;
    for (int i = 0; i < MX_COUNT(names); i++) {
        if (strcmp(names[i].module, module) || strcmp(names[i].name, name)) continue;
        Value *value = pickle_new(m, NAME);
        value->name = &names[i];
        return pickle_push(m, value);
    }
    return mx_fail(m->err, MX_EXIT_BAD_INPUT, m->where,
                   "byte %zu: names \"%s.%s\"; only dictionaries of tensors are read, and nothing "
                   "is run",
                   m->at, module, name);
}

/* ("storage", what it holds, key, device, elements) */
static bool run_binpersid(Machine *m) {
    Value *id;
    if (!pickle_pop(m, &id)) return false;
    bool is_storage = id->kind == TUPLE && id->n == 5 && id->item[0]->kind == TEXT &&
                      !strcmp(id->item[0]->text, "storage") && id->item[1]->kind == NAME &&
                      id->item[1]->name->calls == IS_STORAGE && id->item[2]->kind == TEXT &&
                      id->item[4]->kind == NUMBER && id->item[4]->number >= 0;
    if (!is_storage) return pickle_fail(m, "it wants something else than the elements of a tensor");
    Value *storage = pickle_new(m, STORAGE);
    storage->storage = id->item[1]->name;
    storage->text = id->item[2]->text;
    storage->number = id->item[4]->number;
    return pickle_push(m, storage);
}

/* ---- calls */

/* (storage, first element, sizes, steps, …) */
static bool make_tensor(Machine *m, const Value *args, Value **out) {
    bool is_good = args->n >= 4 && args->item[0]->kind == STORAGE &&
                   args->item[1]->kind == NUMBER && args->item[1]->number >= 0 &&
                   args->item[2]->kind == TUPLE && args->item[3]->kind == TUPLE &&
                   args->item[2]->n == args->item[3]->n;
    if (!is_good) return pickle_fail(m, "a tensor without elements, sizes or steps");
    PickledTensor *t = mx_new(m->arena, PickledTensor);
    *t = (PickledTensor){.storage = args->item[0]->text,
                         .dtype = args->item[0]->storage->dtype,
                         .first = args->item[1]->number,
                         .of_storage = args->item[0]->number};
    for (int d = 0; d < args->item[2]->n; d++) {
        const Value *size = args->item[2]->item[d], *step = args->item[3]->item[d];
        if (size->kind != NUMBER || step->kind != NUMBER ||
            !tensors_add_dim(&t->shape, size->number))
            return pickle_fail(m, "a tensor of no shape, or of too many dims");
        t->step[d] = step->number;
    }
    *out = pickle_new(m, TENSOR);
    (*out)->tensor = t;
    return true;
}

static bool run_reduce(Machine *m) {
    Value *args, *name, *made = NULL;
    if (!pickle_pop(m, &args) || !pickle_pop(m, &name)) return false;
    if (name->kind != NAME || args->kind != TUPLE)
        return pickle_fail(m, "it calls what is no name, or with what is no tuple");
    switch (name->name->calls) {
    case CALLS_DICT:
        return !args->n ? pickle_push(m, pickle_new(m, DICT))
                        : pickle_fail(m, "a dictionary made of something");
    case CALLS_TENSOR:
        return make_tensor(m, args, &made) && pickle_push(m, made);
    case CALLS_PARAMETER:
        return args->n && args->item[0]->kind == TENSOR
                   ? pickle_push(m, args->item[0])
                   : pickle_fail(m, "a parameter that is no tensor");
    case IS_STORAGE:
        break;
    }
    return pickle_fail(m, "it calls the name of a storage");
}

/* ---- the machine */

// clang-format off
static const struct {
    uint8_t code;
    const char *name;
    bool (*run)(Machine *m); /* NULL = it is refused */
} instructions[] = {
    {0x80, "PROTO", pickle_run_proto},            {'.', "STOP", pickle_run_stop},
    {'(', "MARK", pickle_run_mark},               {'N', "NONE", pickle_run_none},
    {0x88, "NEWTRUE", pickle_run_truth},          {0x89, "NEWFALSE", pickle_run_truth},
    {'}', "EMPTY_DICT", pickle_run_empty_dict},   {')', "EMPTY_TUPLE", pickle_run_empty_tuple},
    {'J', "BININT", pickle_run_binint},           {'K', "BININT1", pickle_run_binint1},
    {'M', "BININT2", pickle_run_binint2},         {0x8a, "LONG1", pickle_run_long1},
    {'X', "BINUNICODE", pickle_run_binunicode},   {'c', "GLOBAL", run_global},
    {'t', "TUPLE", pickle_run_tuple},             {0x85, "TUPLE1", pickle_run_tuple1},
    {0x86, "TUPLE2", pickle_run_tuple2},          {0x87, "TUPLE3", pickle_run_tuple3},
    {'u', "SETITEMS", pickle_run_setitems},       {'s', "SETITEM", pickle_run_setitem},
    {'b', "BUILD", pickle_run_build},             {'q', "BINPUT", pickle_run_binput},
    {'r', "LONG_BINPUT", pickle_run_long_binput}, {'h', "BINGET", pickle_run_binget},
    {'j', "LONG_BINGET", pickle_run_long_binget}, {'Q', "BINPERSID", run_binpersid},
    {'R', "REDUCE", run_reduce},
    {'I', "INT", NULL}, {'L', "LONG", NULL}, {0x8b, "LONG4", NULL}, {'S', "STRING", NULL},
    {'T', "BINSTRING", NULL}, {'U', "SHORT_BINSTRING", NULL}, {'B', "BINBYTES", NULL},
    {'C', "SHORT_BINBYTES", NULL}, {0x8e, "BINBYTES8", NULL}, {0x96, "BYTEARRAY8", NULL},
    {0x97, "NEXT_BUFFER", NULL}, {0x98, "READONLY_BUFFER", NULL}, {'V', "UNICODE", NULL},
    {0x8c, "SHORT_BINUNICODE", NULL}, {0x8d, "BINUNICODE8", NULL}, {'F', "FLOAT", NULL},
    {'G', "BINFLOAT", NULL}, {']', "EMPTY_LIST", NULL}, {'a', "APPEND", NULL},
    {'e', "APPENDS", NULL}, {'l', "LIST", NULL}, {'d', "DICT", NULL}, {0x8f, "EMPTY_SET", NULL},
    {0x90, "ADDITEMS", NULL}, {0x91, "FROZENSET", NULL}, {'0', "POP", NULL}, {'2', "DUP", NULL},
    {'1', "POP_MARK", NULL}, {'g', "GET", NULL}, {'p', "PUT", NULL}, {0x94, "MEMOIZE", NULL},
    {0x82, "EXT1", NULL}, {0x83, "EXT2", NULL}, {0x84, "EXT4", NULL}, {0x93, "STACK_GLOBAL", NULL},
    {'i', "INST", NULL}, {'o', "OBJ", NULL}, {0x81, "NEWOBJ", NULL}, {0x92, "NEWOBJ_EX", NULL},
    {0x95, "FRAME", NULL}, {'P', "PERSID", NULL},
};
// clang-format on

static bool step(Machine *m) {
    const uint8_t *code;
    int i = 0;
    if (!pickle_take(m, 1, &code)) return false;
    while (i < MX_COUNT(instructions) && instructions[i].code != *code) i++;
    bool is_known = i < MX_COUNT(instructions);
    if (is_known && instructions[i].run) return instructions[i].run(m);
    return mx_fail(m->err, MX_EXIT_BAD_INPUT, m->where,
                   "byte %zu: the instruction %s (0x%02x), which no dictionary of tensors needs",
                   m->at - 1, is_known ? instructions[i].name : "unknown to Python", *code);
}

/* What is left on the stack at the end. */
static bool collect(Machine *m, PickledTensor **out, int *n_out) {
    const Value *all = m->n_stack == 1 ? m->stack[0] : NULL;
    if (!all || all->kind != DICT)
        return mx_fail(m->err, MX_EXIT_BAD_INPUT, m->where, "holds no dictionary of tensors");
    *out = mx_new_n(m->arena, PickledTensor, all->n / 2 + 1);
    for (int i = 0; i < all->n; i += 2) {
        const Value *key = all->item[i], *value = all->item[i + 1];
        if (key->kind != TEXT)
            return mx_fail(m->err, MX_EXIT_BAD_INPUT, m->where, "a key is %s, wanted a text",
                           kind_names[key->kind]);
        if (value->kind != TENSOR)
            return mx_fail(m->err, MX_EXIT_BAD_INPUT, m->where, "\"%s\" is %s, wanted a tensor",
                           key->text, kind_names[value->kind]);
        (*out)[*n_out] = *value->tensor;
        (*out)[(*n_out)++].name = key->text;
    }
    return true;
}

bool pickle_read(MxArena *arena, const uint8_t *bytes, size_t n, MxWhere where, PickledTensor **out,
                 int *n_out, MxError *err) {
    MxArena scratch = {.name = "pickle"};
    Machine m = {
        .arena = arena, .scratch = &scratch, .bytes = bytes, .n = n, .where = where, .err = err};
    bool ok = true;
    *n_out = 0;
    while (ok && !m.is_over) ok = step(&m);
    ok = ok && collect(&m, out, n_out);
    mx_arena_release(&scratch);
    return ok;
}
