# mxtrain.  `make help` lists the targets; README.md draws the rooms.
#
# Rooms, lowest first.  A room may use only the rooms on its own line, and theirs.
# A room's tests are linked against exactly that closure, so an upward call does not link.
ROOMS       := base tree family config shard graph ops optim model lower device run store text guide chat image data ckpt program generate serve train plan report
USES.base   :=
USES.tree   := base
USES.family := tree
USES.config := family
USES.shard  := base
USES.graph  := base
USES.ops    := graph
USES.optim  := ops family config
USES.model  := ops family config
USES.lower  := ops shard
USES.device := ops
USES.run    := lower device
USES.store  := base
USES.text   := base
USES.guide  := text
USES.chat   := text
USES.image  := base
USES.data   := store chat image family
USES.ckpt   := family store config
USES.program := run optim model data config shard
USES.generate := program ckpt text guide data
USES.serve  := generate
USES.train  := generate
USES.plan   := train
USES.report := plan

MULTIARCH   := $(shell $(CC) -print-multiarch)
OPENBLAS    := $(firstword $(wildcard /usr/lib/$(MULTIARCH)/openblas-openmp))

# Outside libraries, each named once: only this room and those above it can link to it.
LIBS.base   := -lxxhash -ljansson -lpcre2-8 -lm
LIBS.config := -lyaml
LIBS.device := -ldnnl -fopenmp -ldl $(shell pkg-config --libs ompi-c 2>/dev/null)
LIBS.text   := -lutf8proc -lpthread
LIBS.store  := $(shell pkg-config --libs hdf5-serial 2>/dev/null)
LIBS.image  := -lpthread $(shell pkg-config --libs libpng libjpeg sndfile soxr 2>/dev/null)
LIBS.data   := -lpthread $(shell pkg-config --libs zlib libzstd liblz4 libbrotlidec snappy 2>/dev/null)
LIBS.serve  := -lpthread $(shell pkg-config --libs libmicrohttpd 2>/dev/null)
# What programs and the kernels that they load must have in common: all that these kernels include.
LOADED      := -DMX_LOADED=$(shell cat $(wildcard $(foreach r,base graph ops device,include/mx/$r*.h)) $(wildcard include/mx/ops*.def) | cksum | cut -d ' ' -f 1)u
INCS.device := -I/usr/include/$(MULTIARCH)/openblas-openmp $(shell pkg-config --cflags ompi-c 2>/dev/null) \
               -Isrc -DMX_OPENBLAS='"$(OPENBLAS)/libopenblas.so.0"' $(LOADED)
INCS.store  := $(shell pkg-config --cflags hdf5-serial 2>/dev/null)

# Only kernels run in parallel.  clang would bring its own OpenMP runtime beside oneDNN's, so under
# clang the rooms are compiled without (it serves for warnings, sanitizers and fuzzing).  Loops with
# clang's sanitizers in them stay scalar, which it would warn of.
IS_CLANG    := $(findstring clang,$(shell $(CC) --version))
OPT.device  := $(if $(IS_CLANG),-fopenmp-simd $(if $(SAN),-Wno-pass-failed),-fopenmp) $(if $(SAN),-O2,-O3) -fno-math-errno -fno-trapping-math -ffp-contract=fast

# The kernels are compiled once for each level of processors; src/device/cpu/level.c chooses.
KERNELS           := $(wildcard src/device/cpu/kernels/*.c)
LEVELS            := baseline $(if $(findstring x86_64,$(MULTIARCH)),avx2 avx512 avx512_bf16)
FLAGS.avx2        := -march=x86-64-v3
FLAGS.avx512      := -march=x86-64-v4 -mprefer-vector-width=512
FLAGS.avx512_bf16 := $(FLAGS.avx512) -mavx512bf16
# Compilers do not choose what these levels add, so kernels without this word, in themselves or in a
# header of theirs, are those of the level below.
BELOW.avx512_bf16 := avx512
BELOW.tiles_in_c  := avx512_bf16
WORD.avx512_bf16  := __AVX512BF16__
WORD.tiles_in_c   := TILES_OPEN
own_kernels        = $(shell cd src/device/cpu/kernels && grep -lF "$$(grep -l $(WORD.$1) *.h | sed 's/.*/"&"/'; echo $(WORD.$1))" *.c)
$(foreach l,avx512_bf16 tiles_in_c,$(eval OWN.$l := table $(basename $(call own_kernels,$l))))
kernel_at          = $(if $(and $(BELOW.$1),$(filter-out $(OWN.$1),$2)),$(call kernel_at,$(BELOW.$1),$2),$B/device/cpu/$1/$2.o)
# Kernels for GPUs are files of their own beside the programs, which load them and whose functions they call.
NVCC        ?= nvcc
GPUS        ?= 80 90
CUDA_SOURCES := $(wildcard src/device/cuda/kernels/*.cu)
override LDFLAGS += -rdynamic
# For tests: the kernels of AMX on a processor without, its instructions in C (tests/device/tiles.c).
TILES_IN_C        := $(if $(findstring x86_64,$(MULTIARCH)),tiles_in_c)
FLAGS.tiles_in_c  := $(FLAGS.avx512_bf16) -include tests/device/tiles_in_c.h

# Tools: one main() each, in <tool>.c, with <tool>_*.c; linked against no more than it uses.
TOOLS          := mxtrain mxconvert mxcompare mxdecode
USES.mxtrain   := report
USES.mxconvert := ckpt model text
USES.mxcompare := ckpt model
USES.mxdecode  := serve
# And one that is a script, src/tools/<name>.
SCRIPTS        := mxrun
PROGRAMS       := $(TOOLS) $(SCRIPTS)

B        := build$(if $(IS_CLANG),/clang)
CFLAGS   ?= -O2 -g
override CFLAGS += -std=c17 -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes \
            -Wmissing-prototypes -Wvla -Werror -MMD -MP
override CPPFLAGS += -Iinclude -D_GNU_SOURCE
comma    := ,

# What makes an error in memory end the process rather than serve whoever provoked it.
ifndef SAN
HARDEN   := -fstack-protector-strong $(if $(filter -O1 -O2 -O3 -Os,$(CFLAGS)),-D_FORTIFY_SOURCE=2) \
            $(if $(findstring x86_64,$(MULTIARCH)),-fcf-protection=full)
override CFLAGS  += $(HARDEN)
override LDFLAGS += -Wl,-z,relro,-z,now
endif
ifdef SAN    # make test SAN=address,undefined
B        := build/$(if $(IS_CLANG),clang-)san-$(subst $(comma),-,$(SAN))
# Lines are enough for its reports; where variables are would take gcc half of the time. At a fixed
# address, because every check has its place in the sources, 600,000 pointers in all, which a program
# that may be anywhere would have to relocate whenever it starts.
override CFLAGS  += -fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer -g1 -fno-pie
override LDFLAGS += -fsanitize=$(SAN) -no-pie
# Sanitizers keep memory that was freed from being used again for a while. With their usual 256 MB all pages
# are new ones, which makes tests slower by a third, and most uses of freed memory come soon.
export ASAN_OPTIONS := quarantine_size_mb=8
endif

# Fuzz targets: tests/fuzz/<name>.c over the closure of one room; without a fuzzer they replay their corpus.
FUZZERS          := calls config_yaml http json jsonl picture records request schema shard_rules sound template tensors tokenizer
USES.calls       := serve
USES.config_yaml := config
USES.http        := serve
USES.json        := base
USES.jsonl       := data
USES.picture     := image
USES.records     := data
USES.request     := serve
USES.schema      := guide
USES.shard_rules := shard
USES.sound       := image
USES.template    := chat
USES.tensors     := store
USES.tokenizer   := text

closure = $(sort $1 $(foreach u,$(USES.$1),$(call closure,$u)))
sources = $(wildcard src/$1/*.c src/$1/*/*.c)
objs    = $(foreach r,$(call closure,$1),$(patsubst src/%.c,$B/%.o,$(call sources,$r)) $(OBJS.$r))
OBJS.device := $(LEVELS:%=$B/device/cpu/%.o)
libs    = $(foreach r,$(call closure,$1),$(LIBS.$r))
room_of = $(word 2,$(subst /, ,$1))
link    = $(CC) $(LDFLAGS) -o $@ $^

all: $(PROGRAMS:%=$B/%)  ## build the tools (default)
$(SCRIPTS:%=$B/%): $B/%: src/tools/% ; @mkdir -p $(@D) ; install $< $@

# The descriptors of ops, which several rooms' tests loop over.
OP_CASES        := $(patsubst %.c,$B/%.o,$(wildcard tests/cases/*.c))
OP_CASES.ops    := $(OP_CASES)
OP_CASES.device := $(OP_CASES)
OP_CASES.run    := $(OP_CASES)

# Of all tests: where goldens are, and marks of lines, which the linker takes from Check.
COMMON_OBJS := $(patsubst %.c,$B/%.o,$(wildcard tests/common/*.c))
test_link    = $(link) -Wl,--wrap=_mark_point $1 -lcheck -lsubunit -lrt -lpthread -lm

define tool
$B/$1: $(patsubst src/%.c,$B/%.o,$(wildcard src/tools/$1.c src/tools/$1_*.c)) $(call objs,$1) ; $$(link) $(call libs,$1)
endef
define room
$B/test_$1: $(patsubst %.c,$B/%.o,$(wildcard tests/$1/*.c)) $(OP_CASES.$1) $(COMMON_OBJS) $(call objs,$1) ; $$(call test_link,$(call libs,$1))
$(patsubst src/%.c,$B/%.o,$(call sources,$1)): override CFLAGS += $(OPT.$1)
$(patsubst src/%.c,$B/%.o,$(call sources,$1)): override CPPFLAGS += $(INCS.$1)
endef
define fuzzer
$B/fuzz_$1: $B/tests/fuzz/$1.o $(if $(FUZZ),,$B/tests/fuzz/replay.o) $(call objs,$(USES.$1)) ; $$(link) $(call libs,$(USES.$1))
endef
# All objects of a level as one, of which only the table of kernels can be seen.
define level
$B/device/cpu/$1.o: $(foreach k,$(notdir $(basename $(KERNELS))),$(call kernel_at,$1,$k))
	$(CC) -r -nostdlib -o $$@ $$^
	objcopy --keep-global-symbol=cpu_kernels_$1 $$@
$B/device/cpu/$1/%.o: src/device/cpu/kernels/%.c
	@mkdir -p $$(@D)
	$(CC) $(CPPFLAGS) $(INCS.device) -DCPU_LEVEL=$1 $(CFLAGS) $(OPT.device) $(FLAGS.$1) -c -o $$@ $$<
endef
GPU_CXXFLAGS := -std=c++20 -Iinclude -Isrc -D_GNU_SOURCE $(LOADED)
GPU_WARNINGS := -Wall -Wextra -Wno-missing-field-initializers -Wno-unknown-pragmas
GPU_CXX.cuda   = $(NVCC) $(GPU_CXXFLAGS) -O3 -Xcompiler "-fPIC $(GPU_WARNINGS)" $(foreach g,$(GPUS),-gencode arch=compute_$g$(comma)code=sm_$g) -Werror all-warnings
GPU_CXX.fibers = $(CXX) $(GPU_CXXFLAGS) -O2 -g -fPIC $(GPU_WARNINGS) -Werror -x c++
GPU_LINK.cuda   = $(NVCC) -shared -o $@ $^ -lcublasLt
GPU_LINK.fibers = $(CXX) -shared -o $@ $^
define gpu_kernels
$B/mxtrain_$1.so: $(patsubst src/device/cuda/%,$B/device/cuda/$1/%.o,$(CUDA_SOURCES) $2) ; $$(GPU_LINK.$1)
$B/device/cuda/$1/%.o: src/device/cuda/% ; @mkdir -p $$(@D) ; $$(GPU_CXX.$1) -MMD -MP -c -o $$@ $$<
endef
$(eval $(call gpu_kernels,cuda,$(wildcard src/device/cuda/nvidia/*.cu)))
$(eval $(call gpu_kernels,fibers,$(wildcard src/device/cuda/fibers/*.cc)))
cuda: $B/mxtrain_cuda.so  ## build the kernels for GPUs of NVIDIA (nvcc; GPUS="80 90"), which hardware=gpu loads
$(foreach l,$(LEVELS) $(TILES_IN_C),$(eval $(call level,$l)))
$(foreach t,$(TOOLS),$(eval $(call tool,$t)))
$(foreach f,$(FUZZERS),$(eval $(call fuzzer,$f)))
$(foreach r,$(ROOMS),$(eval $(call room,$r)))

$B/report/assets.o: src/report/page.css src/report/page.js
$B/%.o: src/%.c   ; @mkdir -p $(@D) ; $(CC) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<
$B/tests/%.o: tests/%.c ; @mkdir -p $(@D) ; $(CC) $(CPPFLAGS) -Itests -Isrc $(CFLAGS:-O2=-O1) -c -o $@ $<

$B/tests/device/%.o: override CFLAGS += -fopenmp-simd # headers of kernels have loops

# Tests of several ranks: one program that a launcher starts.
USES.mpi    := plan
$B/test_mpi: $(patsubst %.c,$B/%.o,$(wildcard tests/mpi/*.c)) $(OP_CASES) $(COMMON_OBJS) $(call objs,$(USES.mpi)) ; $(call test_link,$(call libs,$(USES.mpi)))
MPIRUN      := $(if $(SAN),ASAN_OPTIONS=$(ASAN_OPTIONS):detect_leaks=0) OMP_NUM_THREADS=1 mpirun --allow-run-as-root --oversubscribe --bind-to none -mca mpi_yield_when_idle 1

# A worker of the test's own stands behind the server.
$B/fuzz_http: override LDFLAGS += -Wl$(comma)--wrap=serve_submit$(comma)--wrap=serve_models$(comma)--wrap=serve_model

$B/test_device: $(TILES_IN_C:%=$B/device/cpu/%.o)
$(if $(TILES_IN_C),$B/test_device: override LDFLAGS += -Wl$(comma)--wrap=cpu_level_find)

TESTED   := $(foreach r,$(ROOMS),$(if $(wildcard tests/$r/*.c),$r))
UNTESTED := $(filter-out $(TESTED),$(ROOMS))

# ---- what a newcomer types; each first installs what is missing, then starts make anew, so that
# ---- paths of libraries are looked up when they are there

demo:  ## install missing packages, build, train the default config on the bundled text
	@$(MAKE) -s deps
	@$(MAKE) -s -j$(shell nproc) all
	$B/mxtrain --config configs/base.yml run_name=demo

demo-lora:  ## the same with configs/recipes/lora.yml: a small model first, then adapters for other data
	@$(MAKE) -s deps
	@$(MAKE) -s -j$(shell nproc) all
	$B/mxtrain configs/base.yml run_name=demo-lora-base steps=40 eval_interval=-1 log_config=false
	$B/mxtrain configs/recipes/lora.yml

demo-distill:  ## the same with configs/recipes/distill.yml: a teacher first, then a student of half its depth
	@$(MAKE) -s deps
	@$(MAKE) -s -j$(shell nproc) all
	$B/mxtrain configs/base.yml run_name=teacher eval_interval=-1 log_config=false
	$B/mxtrain configs/recipes/distill.yml

demo-chat:  ## train a tokenizer, a small model and chat adapters, then hold a conversation (configs/recipes/chat.yml)
	@$(MAKE) -s deps
	@$(MAKE) -s -j$(shell nproc) all
	scripts/demo_chat.sh $B maxtext_output

demo-%:  ## the same with configs/recipes/%.yml
	@$(MAKE) -s deps
	@$(MAKE) -s -j$(shell nproc) all
	$B/mxtrain configs/recipes/$*.yml run_name=demo-$*

test:  ## the same set-up, then the tests of all rooms and programs, on one and two ranks
	@$(MAKE) -s deps
	@$(MAKE) -s -j$(shell nproc) tests
	@CK_EXCLUDE_TAGS=long $(MAKE) -s check SUITES='$(QUICK)' && echo 'make check-longer runs the other suites: $(LONGER)'

# Debian packages; nothing is fetched when all are there.
PACKAGES := gcc g++ libc6-dev pkg-config libyaml-dev libopenblas-openmp-dev libdnnl-dev libhdf5-dev \
            libxxhash-dev libjansson-dev libpcre2-dev libutf8proc-dev zlib1g-dev libzstd-dev liblz4-dev \
            libbrotli-dev libsnappy-dev libpng-dev libjpeg62-turbo-dev libsndfile1-dev libsoxr-dev libmicrohttpd-dev libopenmpi-dev openmpi-bin check
CROSS_PACKAGES := gcc-aarch64-linux-gnu libc6-dev-arm64-cross
SITE_PACKAGES := cmark-gfm python3-minimal
DEV_PACKAGES := clang clang-format libclang-rt-14-dev mandoc zsh fish strace $(SITE_PACKAGES)
SUDO     := $(if $(filter 0,$(shell id -u)),,sudo)

deps:  ## install the libraries and tools that the build needs (apt)
	@dpkg -s $(PACKAGES) >/dev/null 2>&1 || { $(SUDO) apt-get update -q && \
	    $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $(PACKAGES); }

deps-dev: deps  ## install what tidy, clang builds and fuzzing also need
	@dpkg -s $(DEV_PACKAGES) >/dev/null 2>&1 || { $(SUDO) apt-get update -q && \
	    $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $(DEV_PACKAGES); }

deps-site:
	@dpkg -s $(SITE_PACKAGES) >/dev/null 2>&1 || { $(SUDO) apt-get update -q && \
	    $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $(SITE_PACKAGES); }

DEB_PACKAGES := dpkg-dev
deps-deb:
	@dpkg -s $(DEB_PACKAGES) >/dev/null 2>&1 || { $(SUDO) apt-get update -q && \
	    $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $(DEB_PACKAGES); }

deps-aarch64: deps
	@dpkg -s $(CROSS_PACKAGES) >/dev/null 2>&1 || { $(SUDO) apt-get update -q && \
	    $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $(CROSS_PACKAGES); }

# ---- for developers

# For crashes, power losses, full disks, failing calls and damage: libraries to be preloaded, and a disk after a power loss.
FAULTS := $B/faults.so $B/record.so $B/power
tests: $(TESTED:%=$B/test_%) $B/test_mpi $(FUZZERS:%=$B/fuzz_%) $(PROGRAMS:%=$B/%) $(FAULTS)
# A suite is a command: a room's tests unless it has a line here. Those that take long come first, so
# that none of them is left alone at the end.
RANKS        ?= 1 2 4 8
# Rooms that run programs, on the backend whose memory the host cannot touch: some suites of theirs here,
# all of them in check-guarded.
GUARDED_ROOMS := run ckpt train $(RANKS:%=mpi-%) ranks
# Sanitizers, which look at the host's memory themselves, leave them out.
GUARDED      := $(if $(SAN),,run golden preference checkpoints ranks)
# Kernels for GPUs, as fibers of the host; sanitizers know nothing of their stacks.
FIBERS       := $(if $(SAN),,kernels golden)
ANY_ORDER    := $(RANKS:%=mpi-%) ranks $(if $(SAN),,cluster) fault cli decode decoding reply tasks meta serving finetune docs images sounds manual watching $(if $(SAN),,hardened confined) $(TESTED) $(FUZZERS:%=replay-%) $(GUARDED:%=guarded-%) $(FIBERS:%=fibers-%)
LONGEST      := $(filter fibers-kernels mpi-8 mpi-4 ranks cluster fault plan device train ckpt,$(ANY_ORDER))
SUITES       := $(LONGEST) $(filter-out $(LONGEST),$(ANY_ORDER))
# Suites with cases that are long (tcase_set_long), which a suite of their own runs.
LONG         := train plan ckpt mpi-1 mpi-2
# What runs the same on more ranks, machines and backends, campaigns, and the long cases.
ELSEWHERE    := $(filter-out mpi-1 mpi-2,$(filter mpi-% ranks cluster fault images guarded-% fibers-%,$(SUITES)))
QUICK        := $(filter-out $(ELSEWHERE),$(SUITES))
LONGER       := $(LONG:%=long-%) $(ELSEWHERE)
SUITE.cli    := tests/cli/run.sh $B/mxtrain
SUITE.decode := tests/cli/decode.sh $B/mxdecode
SUITE.manual := tests/cli/manual.sh $(TOOLS:%=$B/%)
SUITE.tasks  := tests/cli/tasks.sh $B/mxdecode
SUITE.finetune := tests/cli/finetune.sh $B
SUITE.docs := tests/docs/run.sh $B
SUITE.meta := tests/cli/meta.sh $B
SUITE.images := tests/cli/images.sh $B
SUITE.sounds := tests/cli/sounds.sh $B
SUITE.reply  := tests/cli/reply.sh $B/mxtrain $B/mxdecode $B/mxcompare $B/mxconvert
SUITE.decoding := tests/cli/decoding.sh $B/mxtrain $B/mxdecode
SUITE.serving := tests/serve/run.sh $B/mxtrain $B/mxdecode
SUITE.watching := tests/watching/run.sh $B/mxtrain
SUITE.hardened := tests/cli/hardened.sh $(TOOLS:%=$B/%)
SUITE.confined := tests/cli/confined.sh $B
SUITE.fault  := tests/fault/run.sh $(abspath $B)
SUITE.ranks  := tests/mpi/run.sh $B/mxtrain $B/mxcompare
SUITE.cluster := tests/cluster/run.sh $B
$(foreach n,$(RANKS),$(eval SUITE.mpi-$n := $(MPIRUN) -n $n $B/test_mpi))
$(foreach f,$(FUZZERS),$(eval SUITE.replay-$f := $B/fuzz_$f tests/fuzz/corpus/$f))
# In double quotes: a command stands in single ones below.
SUITE.guarded-run := MX_BACKEND=guarded $B/test_run
train_on       = MX_BACKEND=$1 CK_RUN_SUITE="$2" MX_BIN=$B/mxtrain $B/test_train
SUITE.guarded-golden := $(call train_on,guarded,golden)
SUITE.guarded-preference := $(call train_on,guarded,post-training)
SUITE.guarded-checkpoints := $(call train_on,guarded,checkpoints)
SUITE.guarded-ranks := MX_BACKEND=guarded CK_RUN_SUITE=mpi/checkpoints $(MPIRUN) -n 2 $B/test_mpi
SUITE.fibers-kernels := export CK_TIMEOUT_MULTIPLIER=6 MX_BACKEND=fibers; CK_RUN_SUITE=backends $B/test_device && CK_RUN_SUITE=kernels $B/test_device
# Of some minutes: only if it is asked for.
SUITE.fibers-run := MX_BACKEND=fibers $B/test_run
SUITE.fibers-golden := CK_TIMEOUT_MULTIPLIER=6 $(call train_on,fibers,golden)
suite         = $(or $(SUITE.$1),MX_BIN=$B/mxtrain $B/test_$1)
$(foreach s,$(LONG),$(eval SUITE.long-$s = CK_INCLUDE_TAGS=long $$(call suite,$s)))
check: tests $(if $(filter fibers-%,$(SUITES)),$B/mxtrain_fibers.so)  ## run all suites, as many at a time as there are cores; JOBS=1 for one
	@$(if $(UNTESTED),echo 'rooms without tests of their own: $(UNTESTED)'; exit 1)
	@tests/check.sh $B/check $(or $(JOBS),$(shell nproc)) $(foreach s,$(SUITES),'$s: $(call suite,$s)')
check-longer:  ## run what make test leaves out: long loops, more ranks, machines and backends, campaigns
	@$(MAKE) -s check SUITES='$(LONGER)'
check-%: tests ; $(call suite,$*)
check-fibers-kernels check-fibers-run check-fibers-golden: $B/mxtrain_fibers.so
check-levels: $B/mxtrain $B/test_device $B/test_run $B/test_train  ## test kernels, programs and training at every processor level below the machine's
	@tests/levels.sh $B $(or $(JOBS),$(shell nproc))
check-guarded: tests  ## run all tests of programs on a backend whose memory the host cannot access
	@tests/check.sh $B/check-guarded $(or $(JOBS),$(shell nproc)) $(foreach s,$(GUARDED_ROOMS),'guarded-$s: MX_BACKEND=guarded CK_TIMEOUT_MULTIPLIER=10 $(call suite,$s)')
check-aarch64:  ## compile everything for another processor (needs gcc-aarch64-linux-gnu)
	@for f in src/*/*.c src/*/*/*.c src/device/cpu/kernels/*.c; do \
	    aarch64-linux-gnu-gcc $(CPPFLAGS) $(INCS.device) $(INCS.store) -DCPU_LEVEL=baseline $(filter-out -MMD -MP -fcf-protection%,$(CFLAGS)) \
	        -fopenmp -fsyntax-only -idirafter /usr/include -idirafter /usr/include/$(MULTIARCH) $$f || exit 1; \
	done
FAULT_CC := $(CC) -std=c17 -Wall -Wextra -Werror -O2 -D_GNU_SOURCE
$B/%.so: tests/fault/%.c tests/fault/record.h ; @mkdir -p $(@D) ; $(FAULT_CC) -fPIC -shared -o $@ $< -ldl
$B/power: tests/fault/power.c tests/fault/record.h ; @mkdir -p $(@D) ; $(FAULT_CC) -o $@ $<
test-long: $B/mxtrain $B/mxcompare $B/mxrun $B/mxconvert $(FAULTS) $(FUZZERS:%=$B/fuzz_%) $B/test_ckpt $B/test_mpi $B/test_plan  ## run the long versions of the tests of faults, damaged files, ranks and keys, and check-guarded; about two hours
	MX_LONG=1 CK_RUN_SUITE=keys MX_BIN=$B/mxtrain $B/test_plan
	tests/campaign.sh $B
	tests/fault/run.sh $(abspath $B) long calls storage full_disk memory unreadable ranks
	for n in 1 2 3 4 6 8; do MX_LONG=1 $(MPIRUN) -n $$n $B/test_mpi || exit 1; done
	tests/mpi/run.sh $B/mxtrain $B/mxcompare long
	tests/cluster/run.sh $B long
	$(MAKE) -s check-guarded
check-mpi: $(RANKS:%=check-mpi-%) check-ranks
fuzz-%:  ## search for inputs that break a parser (clang, libFuzzer), FUZZ_SECONDS=60
	@mkdir -p build/fuzz/corpus/$*
	@$(MAKE) -s CC=clang SAN=address,undefined,fuzzer-no-link FUZZ=1 LDFLAGS=-fsanitize=fuzzer B=build/fuzz build/fuzz/fuzz_$*
	build/fuzz/fuzz_$* -max_total_time=$(or $(FUZZ_SECONDS),60) build/fuzz/corpus/$* tests/fuzz/corpus/$*
# The benchmark's programs, built only when it runs.
USES.ops-bench := run model config
USES.providers-bench := device
USES.checkpoint-bench := ckpt model config device
USES.generate-bench := program
BENCH          := $B/bench
bench_objs      = $(patsubst %,$(BENCH)/%.o,$1)

$(BENCH)/%.o: bench/%.c ; @mkdir -p $(@D) ; $(CC) $(CPPFLAGS) $(INCS.device) $(CFLAGS) -O3 -fopenmp -c -o $@ $<
$(BENCH)/touch: $(call bench_objs,touch common) ; $(link) -fopenmp
$(BENCH)/matmul_floor: $(call bench_objs,matmul_floor product common) ; $(link) $(LIBS.device)
$(BENCH)/ops: $(call bench_objs,ops dense step product common) $(call objs,ops-bench) ; $(link) $(call libs,ops-bench)
$(BENCH)/providers: $(call bench_objs,providers common) $(call objs,providers-bench) ; $(link) $(call libs,providers-bench)
$(BENCH)/checkpoint: $(call bench_objs,checkpoint common) $(call objs,checkpoint-bench) ; $(link) $(call libs,checkpoint-bench) -fopenmp
$(BENCH)/generate: $(call bench_objs,generate common) $(call objs,generate-bench) ; $(link) $(call libs,generate-bench) -fopenmp
bench-programs: $B/mxtrain $(BENCH)/touch $(BENCH)/matmul_floor $(BENCH)/ops $(BENCH)/providers $(BENCH)/checkpoint $(BENCH)/generate
bench: bench-programs  ## measure speed against PyTorch; BENCH_ARGS='--workloads w3'
	bench/run.py $(BENCH_ARGS)

tidy: ; scripts/tidy.sh  ## check layering, sizes, banned calls, headers, formatting

# The tools look for their share folder beside the folder that they are in: a prefix may be moved.
PREFIX ?= /usr/local
PREFIXED = $(DESTDIR)$(PREFIX)
SHARE   = $(PREFIXED)/share/mxtrain
CUDA_INSTALLED = $(PREFIXED)/lib/mxtrain/mxtrain_cuda.so
DOC     = $(PREFIXED)/share/doc/mxtrain
MAN     = $(PREFIXED)/share/man
COMPLETIONS = $(addprefix $(PREFIXED)/share/,$(PROGRAMS:%=bash-completion/completions/%) $(PROGRAMS:%=zsh/site-functions/_%) $(PROGRAMS:%=fish/vendor_completions.d/%.fish))
SHARED  = $(shell cd share/mxtrain && find -L * -type f)
DOCS    = README.md CONTRIBUTING.md CHANGELOG.md LICENSE $(wildcard docs/*.md docs/*.png docs/*/*.md)
install: all  ## install tools, configs, bundled data, documents, manual pages and completion under $(DESTDIR)$(PREFIX)
	install -d $(DESTDIR)$(PREFIX)/bin $(SHARE) $(DOC)
	install $(PROGRAMS:%=$B/%) $(DESTDIR)$(PREFIX)/bin
	cp -RL share/mxtrain/* $(SHARE)
	cp -R --parents $(DOCS) $(DOC)
	install -d $(MAN)/man1 $(MAN)/man5 $(dir $(COMPLETIONS))
	if [ -f $B/mxtrain_cuda.so ]; then install -D $B/mxtrain_cuda.so $(CUDA_INSTALLED); fi
	for t in $(PROGRAMS); do $B/$$t --man >$(MAN)/man1/$$t.1 && $B/$$t --completion bash >$(PREFIXED)/share/bash-completion/completions/$$t && \
	    $B/$$t --completion zsh >$(PREFIXED)/share/zsh/site-functions/_$$t && \
	    $B/$$t --completion fish >$(PREFIXED)/share/fish/vendor_completions.d/$$t.fish || exit 1; done
	$B/mxtrain --help-config man >$(MAN)/man5/base.yml.5

uninstall:  ## remove what install put there, and nothing else
	rm -f $(PROGRAMS:%=$(DESTDIR)$(PREFIX)/bin/%) $(CUDA_INSTALLED) $(SHARED:%=$(SHARE)/%) $(DOCS:%=$(DOC)/%) $(PROGRAMS:%=$(MAN)/man1/%.1) $(MAN)/man5/base.yml.5 $(COMPLETIONS)
	find $(wildcard $(SHARE) $(DOC)) -depth -type d -empty -delete

deb: deps deps-deb  ## build a Debian package of the last commit's version, byte-identical wherever it is built: build/deb/mxtrain_<version>_<arch>.deb
	packaging/deb.sh '$(MAKE) -j$(shell nproc)' build/deb
check-deb: deps deps-deb  ## build that package twice, in two folders, and check it: same bytes, lintian, contents, programs, and an installation in a fresh Debian if you are root
	packaging/check.sh '$(MAKE) -j$(shell nproc)' build/deb

docs: $B/mxtrain  ## write configs/base.yml and the tables of docs/CONFIG.md and docs/MAXTEXT.md from the rows of keys and families
	$B/mxtrain --help-config yml >$B/base.yml && cp $B/base.yml configs
	sed '/^### run:/,$$d' docs/CONFIG.md >$B/CONFIG.md && $B/mxtrain --help-config markdown | sed 1d >>$B/CONFIG.md && cp $B/CONFIG.md docs
	sed '/^## Keys that/,$$d' docs/MAXTEXT.md >$B/MAXTEXT.md && $B/mxtrain --help-config maxtext | sed 1d >>$B/MAXTEXT.md && cp $B/MAXTEXT.md docs

site: deps-site  ## write the documents as HTML, with navigation and a search, to build/site; checks links
	rm -rf build/site
	scripts/site.py build/site

clean: ; rm -rf build  ## remove everything built
# A pattern is shown with every word that it stands for.
HELP_DEMO := $(filter-out lora distill chat tiny,$(patsubst configs/recipes/%.yml,%,$(wildcard configs/recipes/*.yml)))
help:  ## print this list
	@awk -F '## ' -v demo='$(HELP_DEMO)' -v fuzz='$(FUZZERS)' '/^[a-z%-]+:.*## / { \
	    sub(/:.*/, "", $$1); n = $$1 ~ /%/ ? split($$1 ~ /^demo/ ? demo : fuzz, word, " ") : 1; \
	    for (i = 1; i <= n; i++) { name = $$1; text = $$NF; gsub(/%/, word[i], name); gsub(/%/, word[i], text); \
	                               printf "  %-17s %s\n", name, text } }' Makefile
rooms-of-%: ; @echo $* $(call closure,$*)
-include $(shell find $B -name '*.d' 2>/dev/null)
.PHONY: docs site deps-site deb check-deb deps-deb check-levels check-guarded check-aarch64 deps-aarch64 bench bench-programs cuda all demo demo-lora demo-distill demo-chat test test-long deps deps-dev tests check tidy install uninstall clean help check-mpi
