/* assets.c — page.css and page.js, each as a string of the program. */
#include "internal.h"

#define ASSET(name, file)                                                                          \
    __asm__(".pushsection .rodata\n.global " #name "\n" #name ":\n.incbin \"" file                 \
            "\"\n.byte 0\n.popsection")

ASSET(report_style, "src/report/page.css");
ASSET(report_script, "src/report/page.js");
