/* topology.c — the number of devices in a slice of one of MaxText's topologies: "v5e-256" names a
 * family and a size, which counts devices or cores. Only these sizes exist. Source: MaxText
 * accelerator_to_spec_map.py @e591f30c. */
#include "room.h"

#include <stdlib.h>

typedef struct Topology {
    const char *family; /* and its dash; without one the family has one size */
    int64_t cores_per_device, devices;
    const char *sizes; /* a space between them */
} Topology;

static const Topology topologies[] = {
    {.family = "tpu7x-",
     .cores_per_device = 1,
     .sizes = "2 8 16 32 64 128 256 384 512 640 768 896 1024 1152 1280 1408 1536 1664 1792 "
              "1920 2048 2176 2304 2432 2560 2688 2816 2944 3072 3200 3328 3456 3584 3712 "
              "3840 3968 4096 4224 4352 4480 4608 4736 4864 4992 5120 5248 5376 5504 5632 "
              "5760 5888 6016 6144 6272 6400 6528 6656 6784 6912 7040 7168 7296 7424 7552 "
              "7680 7808 7936 8064 8192 8320 8448 8704 8832 8960 9216 9472 9600 9728 9856 "
              "9984 10240 10368 10496 10752 10880 11008 11136 11264 11520 11648 11776 11904 "
              "12032 12160 12288 13824 16384 17920 18432"},
    {.family = "v6e-", .cores_per_device = 1, .sizes = "1 4 8 16 32 64 128 256"},
    {.family = "v5e-", .cores_per_device = 1, .sizes = "1 4 8 16 32 64 128 256"},
    {.family = "v4-",
     .cores_per_device = 2,
     .sizes = "8 16 32 64 128 256 384 512 1024 1536 2048 4096"},
    {.family = "v5p-",
     .cores_per_device = 2,
     .sizes = "8 16 32 64 128 256 384 512 640 768 896 1024 1152 1280 1408 1536 1664 1792 1920 "
              "2048 2176 2304 2432 2560 2688 2816 2944 3072 3200 3328 3456 3584 3712 3840 "
              "3968 4096 4224 4352 4480 4608 4736 4864 4992 5120 5248 5376 5504 5632 5760 "
              "5888 6016 6144 6272 6400 6528 6656 6784 6912 7040 7168 7296 7424 7552 7680 "
              "7808 7936 8064 8192 8320 8448 8704 8832 8960 9216 9472 9600 9728 9856 9984 "
              "10240 10368 10496 10752 10880 11008 11136 11264 11520 11648 11776 11904 12032 "
              "12160 12288 13824 17920"},
    {.family = "a3", .devices = 8},
};

int64_t config_topology_devices(const char *name) {
    for (int i = 0; i < MX_COUNT(topologies); i++) {
        const Topology *t = &topologies[i];
        if (!t->sizes && !strcmp(name, t->family)) return t->devices;
        if (!t->sizes || !mx_text_has_prefix(name, t->family)) continue;
        const char *size = name + strlen(t->family);
        if (*size && !strchr(size, ' ') && config_word_in(t->sizes, size))
            return strtoll(size, NULL, 10) / t->cores_per_device;
    }
    return 0;
}

const char *config_topology_families(MxArena *arena) {
    MxText text;
    mx_text_init(&text, arena);
    for (int i = 0; i < MX_COUNT(topologies); i++)
        mx_text_add(&text, "%s%s%s", i ? ", " : "", topologies[i].family,
                    topologies[i].sizes ? "N" : "");
    return text.data;
}
