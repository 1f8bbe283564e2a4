# mxtrain.  `make help` lists the targets; README.md draws the rooms.
#
# Rooms, lowest first.  A room may use only the rooms on its own line, and theirs.
# A room's tests are linked against exactly that closure, so an upward call does not link.
ROOMS       := base config shard tree graph ops model lower device run store text data ckpt train
USES.base   :=
USES.config := base
USES.shard  := base
USES.tree   := base shard
USES.graph  := base shard
USES.ops    := graph
USES.model  := ops tree config
USES.lower  := ops
USES.device := ops
USES.run    := lower device
USES.store  := base
USES.text   := base
USES.data   := store text
USES.ckpt   := tree shard store
USES.train  := run model data ckpt config

MULTIARCH   := $(shell $(CC) -print-multiarch)
OPENBLAS    := $(firstword $(wildcard /usr/lib/$(MULTIARCH)/openblas-openmp))

# Outside libraries, each named once: only this room and those above it can link to it.
LIBS.base   := -lxxhash -ljansson -lm
LIBS.config := -lyaml
LIBS.device := -L$(OPENBLAS) -Wl,-rpath,$(OPENBLAS) -lopenblas -ldnnl -fopenmp
LIBS.store  := $(shell pkg-config --libs hdf5-serial 2>/dev/null)
LIBS.data   := -lpthread
INCS.device := -I/usr/include/$(MULTIARCH)/openblas-openmp
INCS.store  := $(shell pkg-config --cflags hdf5-serial 2>/dev/null)

# Only kernels run in parallel.  clang would bring its own OpenMP runtime beside oneDNN's, so under
# clang the rooms are compiled without (it serves for warnings, sanitizers and fuzzing).
IS_CLANG    := $(findstring clang,$(shell $(CC) --version))
OPT.device  := $(if $(IS_CLANG),-fopenmp-simd,-fopenmp) -O3

# Tools: one main() each, linked against no more than it uses.
TOOLS        := mxtrain
USES.mxtrain := train

B        ?= build$(if $(IS_CLANG),/clang)
PREFIX   ?= /usr/local
SHARE    := $(PREFIX)/share/mxtrain
CFLAGS   ?= -O2 -g
override CFLAGS += -std=c17 -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes \
            -Wmissing-prototypes -Wvla -Werror -MMD -MP
override CPPFLAGS += -Iinclude -D_GNU_SOURCE -DMX_SHARE='"$(SHARE)"'
ifdef SAN    # make test SAN=address,undefined
B        := build/$(if $(IS_CLANG),clang-)san
override CFLAGS  += -fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer
override LDFLAGS += -fsanitize=$(SAN)
endif

closure = $(sort $1 $(foreach u,$(USES.$1),$(call closure,$u)))
sources = $(wildcard src/$1/*.c src/$1/*/*.c)
objs    = $(foreach r,$(call closure,$1),$(patsubst src/%.c,$B/%.o,$(call sources,$r)))
libs    = $(foreach r,$(call closure,$1),$(LIBS.$r))
room_of = $(word 2,$(subst /, ,$1))
link    = $(CC) $(LDFLAGS) -o $@ $^

all: $(TOOLS:%=$B/%)  ## the tools (default)

define tool
$B/$1: $B/tools/$1.o $(call objs,$(USES.$1)) ; $$(link) $(call libs,$(USES.$1))
endef
define room
$B/test_$1: $(patsubst %.c,$B/%.o,$(wildcard tests/$1/*.c)) $(call objs,$1) ; $$(link) $(call libs,$1) -lcheck -lsubunit -lrt -lpthread -lm
$(patsubst src/%.c,$B/%.o,$(call sources,$1)): override CFLAGS += $(OPT.$1)
$(patsubst src/%.c,$B/%.o,$(call sources,$1)): override CPPFLAGS += $(INCS.$1)
endef
$(foreach t,$(TOOLS),$(eval $(call tool,$t)))
$(foreach r,$(ROOMS),$(eval $(call room,$r)))

$B/%.o: src/%.c   ; @mkdir -p $(@D) ; $(CC) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<
$B/tests/%.o: tests/%.c ; @mkdir -p $(@D) ; $(CC) $(CPPFLAGS) -Itests $(CFLAGS) -c -o $@ $<

TESTED  := $(foreach r,$(ROOMS),$(if $(wildcard tests/$r/*.c),$r))

test: $(TESTED:%=test-%)  ## every room's tests, lowest room first
test-%: $B/test_% ; $<
tidy: ; scripts/tidy.sh  ## layering, sizes, banned calls, headers, formatting
clean: ; rm -rf build  ## remove everything built
help: ; @awk -F '## ' '/^[a-z-]+:.*## / { sub(/:.*/, "", $$1); printf "  %-10s %s\n", $$1, $$NF }' Makefile  ## this list
rooms-of-%: ; @echo $(call closure,$*)
-include $(shell find $B -name '*.d' 2>/dev/null)
.PHONY: all test tidy clean help
.SECONDARY:
