/* marks.c — assertions that hold cost nothing much. Check writes the line of every one to a file,
 * so that it can tell where a test was that crashed; tests that compare arrays element by element
 * took half of their time for that. The linker sends these calls here (Makefile): a line is written
 * when the test comes to it from another one. */
#include <check.h>

void __real__mark_point(const char *file, int line);
void __wrap__mark_point(const char *file, int line);

void __wrap__mark_point(const char *file, int line) {
    static const char *last_file;
    static int last_line;
    if (file == last_file && line == last_line) return;
    last_file = file;
    last_line = line;
    __real__mark_point(file, line);
}
