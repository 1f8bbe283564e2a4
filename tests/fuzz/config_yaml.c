/* config_yaml.c — fuzzes the config room: YAML with its typing, merging and messages. Each input is
 * a config file; its first line, if it begins with "#=", is an override instead ("#=steps=5"). */
#include <mx/config.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A config, or an error; never both, never neither. What loads must survive a dump. */
static void load(const char *path, const char *override) {
    MxArena arena = {.name = "fuzz"};
    MxError err = {0};
    MxConfig *config = NULL;
    MxConfigRequest request = {
        .files = &path, .n_files = 1, .overrides = &override, .n_overrides = override != NULL};
    bool ok = mx_config_load(&arena, &request, &config, &err);
    if (ok != (err.count == 0) || ok != (config != NULL)) abort();
    if (!ok && err.exit != MX_EXIT_CONFIG) abort();
    if (ok && !*mx_config_text(&arena, config)) abort();
    mx_error_release(&err);
    mx_arena_release(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int fd = memfd_create("config", 0);
    if (fd < 0) abort();
    char path[64], override[256];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    bool has_override = size > 2 && data[0] == '#' && data[1] == '=';
    size_t n = 0;
    for (; has_override && n + 3 < sizeof override && n + 2 < size && data[n + 2] != '\n'; n++)
        override[n] = (char)data[n + 2];
    override[n] = '\0';
    if (size && write(fd, data, size) != (ssize_t)size) abort();
    load(path, has_override ? override : NULL);
    close(fd);
    return 0;
}
