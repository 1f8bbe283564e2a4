/* pickle.h — private to pickle.c and pickle_stack.c: the machine that a pickle is a program for. */
#ifndef STORE_PICKLE_H
#define STORE_PICKLE_H

#include "tensors.h"

typedef enum Kind { NONE, TRUTH, NUMBER, TEXT, TUPLE, DICT, NAME, STORAGE, TENSOR, MARK } Kind;

/* What a name stands for. */
typedef enum Calls { CALLS_DICT, CALLS_TENSOR, CALLS_PARAMETER, IS_STORAGE } Calls;

typedef struct Name {
    const char *module, *name;
    Calls calls;
    MxDtype dtype; /* of a storage */
} Name;

typedef struct Value Value;
struct Value {
    Kind kind;
    int n; /* items; a dictionary has its keys and values in turn */
    union {
        int64_t number; /* of a storage: elements */
        const Name *name;
        struct {
            Value **item;
            int cap;
        };
        PickledTensor *tensor;
    };
    const char *text;    /* of a storage its key */
    const Name *storage; /* what it holds */
};

typedef struct Machine {
    MxArena *arena; /* of the pickle's tensors and names */
    MxArena *scratch;
    const uint8_t *bytes;
    size_t n, at;
    Value **stack, **memo;
    int n_stack, stack_cap;
    size_t n_memo;
    bool is_over;
    MxWhere where;
    MxError *err;
} Machine;

/* pickle_fail — at the present byte. pickle_take — the next bytes; pickle_take_line — a line of
 * them. pickle_new, pickle_push, pickle_pop — values; pickle_peek — the one that stays on the
 * stack, which must be of a kind. */
bool pickle_fail(const Machine *m, const char *what);
bool pickle_take(Machine *m, size_t n, const uint8_t **out);
bool pickle_take_line(Machine *m, const char **out);
Value *pickle_new(Machine *m, Kind kind);
bool pickle_push(Machine *m, Value *value);
bool pickle_pop(Machine *m, Value **out);
bool pickle_peek(Machine *m, Kind kind, Value **out);

/* Instructions that move values and make plain ones. */
bool pickle_run_proto(Machine *m);
bool pickle_run_stop(Machine *m);
bool pickle_run_mark(Machine *m);
bool pickle_run_none(Machine *m);
bool pickle_run_truth(Machine *m);
bool pickle_run_empty_dict(Machine *m);
bool pickle_run_empty_tuple(Machine *m);
bool pickle_run_binint(Machine *m);
bool pickle_run_binint1(Machine *m);
bool pickle_run_binint2(Machine *m);
bool pickle_run_long1(Machine *m);
bool pickle_run_binunicode(Machine *m);
bool pickle_run_tuple(Machine *m);
bool pickle_run_tuple1(Machine *m);
bool pickle_run_tuple2(Machine *m);
bool pickle_run_tuple3(Machine *m);
bool pickle_run_setitems(Machine *m);
bool pickle_run_setitem(Machine *m);
bool pickle_run_build(Machine *m);
bool pickle_run_binput(Machine *m);
bool pickle_run_long_binput(Machine *m);
bool pickle_run_binget(Machine *m);
bool pickle_run_long_binget(Machine *m);

#endif
