/* tasks.h — private to the room: records of a task, as questions to a model. */
#ifndef GENERATE_TASKS_H
#define GENERATE_TASKS_H

#include <mx/generate.h>

typedef enum TaskKind { TASK_CHOICE, TASK_ANSWER, TASK_TEXT } TaskKind;

/* A text of a record; n bytes, terminated. */
typedef struct TaskText {
    const char *text;
    size_t n;
} TaskText;

typedef struct Question {
    MxWhere where;
    TaskText context; /* or all of a text */
    TaskText *choice; /* [n] of TASK_CHOICE */
    int n, gold;
    TaskText target; /* of TASK_ANSWER */
} Question;

typedef struct Questions {
    TaskKind kind;
    Question *item; /* [n] */
    int64_t n;
} Questions;

/* tasks_read — the records of what->path. The first one's columns tell what all of them are.
 * Errors: file, line, what was found and what was wanted. */
bool tasks_read(MxArena *arena, const MxTasks *what, Questions *out, MxError *err);

#endif
