# zklock: locks in ZooKeeper that end with the PostgreSQL transaction
#
#	make && make install	build and install for the pg_config in PATH
#	make help		the other targets

# In a VPATH build the sources are where this Makefile is.
TOP := $(patsubst %/,%,$(dir $(lastword $(MAKEFILE_LIST))))
sources = $(patsubst $(TOP)/%,%,$(sort $(wildcard $(addprefix $(TOP)/,$(1)))))

MODULE_big = zklock
EXTENSION = zklock
DATA = $(call sources,sql/zklock--*.sql)
OBJS = $(patsubst %.c,%.o,$(call sources,src/*.c src/*/*.c src/*/*/*.c))
EXTVERSION = $(shell sed -n "s/^default_version = '\(.*\)'/\1/p" $(TOP)/zklock.control)
PGFILEDESC = "zklock - distributed transaction locks in ZooKeeper"

# PostgreSQL's headers are not ours to keep free of -Wextra's warnings, hence
# -isystem.  THREADED gives us the asynchronous half of zookeeper.h.
# Symbols are hidden but those that PostgreSQL loads; before 16 PGDLLEXPORT is
# empty.
PG_CPPFLAGS = -I$(srcdir)/src -isystem $(includedir_server) -DTHREADED \
	'-DPGDLLEXPORT=__attribute__((visibility("default")))' \
	'-DZKLOCK_VERSION="$(EXTVERSION)"'
PG_CFLAGS = -Wall -Wextra -fvisibility=hidden
SHLIB_LINK = -lzookeeper_mt

# "make installcheck" runs the tests that need no more than a running server:
# see test/README.md for its settings.  "make test" starts its own servers.
REGRESS = $(patsubst test/sql/%.sql,%,$(call sources,test/sql/*.sql))
REGRESS_OPTS = --inputdir=$(srcdir)/test --load-extension=zklock
ISOLATION = $(patsubst test/isolation/specs/%.spec,%,$(call sources,test/isolation/specs/*.spec))
ISOLATION_OPTS = --inputdir=$(srcdir)/test/isolation --load-extension=zklock

# In a VPATH build, pg_regress looks for expected/ in the build directory.
REGRESS_PREP = $(if $(VPATH),link-expected)

EXTRA_CLEAN = build

# What needs no PostgreSQL must work before there is one: "make test" and
# "make demo" install it.
PG_CONFIG ?= pg_config
PGXS := $(wildcard $(shell $(PG_CONFIG) --pgxs 2>/dev/null))
ifdef PGXS
include $(PGXS)
else
all install installcheck clean:
	@echo "no PostgreSQL server headers found by PG_CONFIG=$(PG_CONFIG);" \
	     "on Debian: apt install postgresql-server-dev-all"; exit 1
endif
.DEFAULT_GOAL := all

# What is pure does without PostgreSQL's headers.
$(filter src/core/%,$(OBJS) $(OBJS:.o=.bc)): override CPPFLAGS = -I$(srcdir)/src

# PGXS tracks no header dependencies.
$(OBJS) $(OBJS:.o=.bc): $(call sources,src/*.h src/*/*.h src/*/*/*.h) Makefile

# Not by a rule: make would find the directories of the sources through VPATH.
ifdef VPATH
MADE := $(shell mkdir -p $(sort $(dir $(OBJS))))

link-expected:
	ln -sfn $(abspath $(srcdir))/expected expected
endif

help:
	@echo "make            build for the PostgreSQL of PG_CONFIG (default: pg_config)"
	@echo "make install    install into it"
	@echo "make demo       two shops, one stock: installs what it needs, shows zklock at work"
	@echo "make test       all tests, from nothing: packages, build, real servers"
	@echo "make check-fast the fast ones of these, before each commit"
	@echo "make soak       those that run at random or under load, for longer: test/README.md"
	@echo "make chaos      faults at random on three clusters and servers, and a checker"
	@echo "make bench      zklock and its rivals side by side, to doc/bench; also bench-quick,"
	@echo "                and bench/run row NAME..., which prints some rows only (bench/run rows),"
	@echo "                and bench/run scale, to doc/bench/scale.md: the cost of 8,000 locks,"
	@echo "                and bench/run network, to doc/performance.md: that of the distance"
	@echo "make rivals     zklock and other locks under the same faults, to doc/bench/rivals.md;"
	@echo "                also rivals/run case RIVAL FAULT SEED: rivals/README.md"
	@echo "make unit       unit tests only (cmocka); also unit-asan, unit-valgrind"
	@echo "make simulate   the worker and backends in virtual time, schedules by their seeds"
	@echo "make simulate-mutations   whether it finds what is broken on purpose"
	@echo "make prove      models of the protocols, checked by spin: src/proof.md;"
	@echo "                also proof/run MODEL, and proof/run MODEL CONDITION"
	@echo "make installcheck   regress and isolation tests on a running server: test/README.md"
	@echo "make deb        Debian packages for the PostgreSQL servers that are installed, to build/deb"
	@echo "make dist       zklock-VERSION.zip for PGXN, of what is committed, to build"
	@echo "make matrix     tests on Debian 12, 13, sid and experimental: test/matrix.md"
	@echo "make images     the container image and compose.yaml, on bases of Debian: test/images/README.md"
	@echo "make kubernetes CloudNativePG's image of the extension with PostgreSQL 18 of sid: test/matrix.md"
	@echo "make site       the pages as a site, to build/site; a broken link fails"
	@echo "make drawing    src/files.svg, the drawing of src/README.md, of src/files.dot"
	@echo "make clean      remove what was built"

test:
	@test/run

check-fast:
	@test/run fast

demo:
	@demo/run

soak:
	@test/run soak

chaos:
	@test/run chaos

bench:
	@bench/run

bench-quick:
	@bench/run quick

# SEED
rivals:
	@rivals/run $(SEED)

deb:
	@packaging/deb

matrix:
	@test/matrix

images:
	@test/images/run

kubernetes:
	@packaging/kubernetes/test

# Models of the protocols, all or one: MODEL, CONDITION
prove:
	@bash -ec '. test/lib/env.sh; zk_need_packages gcc libc6-dev spin python3 make libcmocka-dev'
	@proof/run $(MODEL) $(CONDITION)

# The version of a distribution is that of META.json.
DISTVERSION = $(shell sed -n 's/^  "version": "\(.*\)",/\1/p' META.json)

dist:
	@mkdir -p build
	git archive --format=zip --prefix=zklock-$(DISTVERSION)/ \
		-o build/zklock-$(DISTVERSION).zip HEAD

drawing:
	@bash -ec '. test/lib/env.sh; zk_need_packages graphviz; \
		dot -Tsvg src/files.dot | sed "/^<g id=\"graph0\"/e cat src/files.css" >src/files.svg'

site:
	@bash -ec '. test/lib/env.sh; zk_need_packages furo python3-myst-parser python3-sphinx'
	@sphinx-build -q -E -a -W --keep-going -c packaging/site -d build/site.pickled . build/site
	@cp build/site/README.html build/site/index.html
	@echo "the site begins with $(CURDIR)/build/site/index.html"

# Unit tests: each test/unit/test_*.c is a cmocka program over the files that
# know neither PostgreSQL nor libzookeeper, and over what the programs share:
# the other files of test/unit.
UNIT_PROGRAMS = $(patsubst test/unit/%.c,%,$(sort $(wildcard test/unit/test_*.c)))
# the longest begin first
UNIT_TESTS = $(filter %_model,$(UNIT_PROGRAMS)) $(filter-out %_model,$(UNIT_PROGRAMS))
UNIT_SRC = $(wildcard src/core/*.c src/core/*/*.c) $(filter-out test/unit/test_%,$(wildcard test/unit/*.c))
UNIT_HEADERS = $(wildcard src/*/*.h src/*/*/*.h test/unit/*.h)
UNIT_CFLAGS = -std=gnu99 -g -O1 -Wall -Wextra -Werror -Isrc -Itest/unit -DZKLOCK_TEST_BUILD
UNIT_ASAN = -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer

build/unit/obj/%.o: %.c $(UNIT_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(UNIT_CFLAGS) -c -o $@ $<

build/asan/obj/%.o: %.c $(UNIT_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(UNIT_CFLAGS) $(UNIT_ASAN) -c -o $@ $<

build/unit/%: build/unit/obj/test/unit/%.o $(UNIT_SRC:%.c=build/unit/obj/%.o)
	$(CC) -o $@ $^ -lcmocka

build/asan/%: build/asan/obj/test/unit/%.o $(UNIT_SRC:%.c=build/asan/obj/%.o)
	$(CC) $(UNIT_ASAN) -o $@ $^ -lcmocka

.SECONDARY:

# Run a test program, by LIMITED if that is set, and tell how long that took.
timed = @bash -c 'from=$$(date +%s%3N); $(LIMITED) $(1); status=$$?; echo "$@: $$(($$(date +%s%3N) - from)) ms"; exit $$status'

# A target for each program: make -k runs all of them, even after one has failed,
# and make -j several at a time.
unit: $(UNIT_TESTS:%=unit/%)
unit-asan: $(UNIT_TESTS:%=unit-asan/%)
unit-valgrind: $(UNIT_TESTS:%=unit-valgrind/%)

$(UNIT_TESTS:%=unit/%): unit/%: build/unit/%
	$(call timed,$<)

$(UNIT_TESTS:%=unit-asan/%): unit-asan/%: build/asan/%
	$(call timed,$<)

$(UNIT_TESTS:%=unit-valgrind/%): unit-valgrind/%: build/unit/%
	$(call timed,valgrind --quiet --leak-check=full --error-exitcode=99 $<)

# The simulator: zklock's sources, but for what it leaves out, and stand-ins for
# PostgreSQL are the program; the simulator loads it once for each process.
SIM_LEFT_OUT = $(addprefix src/,zklock.c shared/lockmgr.c \
	$(addprefix backend/,advisory.c cancel.c fence.c functions.c hooks.c \
		reads.c snapshot.c views.c) \
	worker/zookeeper/session_file.c)
SIM_SRC = $(filter-out $(SIM_LEFT_OUT),$(wildcard src/*/*.c src/*/*/*.c))
SIM_GUEST = $(wildcard test/sim/guest/*.c)
SIM_HOST = $(wildcard test/sim/*.c)
SIM_HEADERS = $(wildcard src/*/*.h src/*/*/*.h test/sim/*.h test/sim/guest/*.h)
SIM_CFLAGS = -std=gnu99 -g -O2 -fPIC -fno-strict-aliasing -fwrapv -Wall -Wextra -Werror \
	-D_GNU_SOURCE -DTHREADED -DZKLOCK_TEST_BUILD -Isrc -Itest/sim
SIM_PG_CFLAGS = $(SIM_CFLAGS) -DUSE_ASSERT_CHECKING -isystem $(includedir_server) \
	'-DZKLOCK_VERSION="$(EXTVERSION)"'
# Functions of zklock that tell a checker when they are called.
SIM_WRAPPED = waits_scan session_write lease_write lease_shorten stats_lost \
	lifecycle_end_restored proof_ask session_flush \
	flight_send_alone deadlock_request wake_timeout claim_renew \
	directory_leave directory_next
SIM_LIBS = $(addprefix $(pkglibdir)/,libpgcommon_shlib.a libpgport_shlib.a)

build/sim/obj/src/core/%.o: src/core/%.c $(SIM_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(SIM_CFLAGS) -c -o $@ $<

build/sim/obj/src/%.o: src/%.c $(SIM_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(SIM_PG_CFLAGS) -fsanitize-coverage=trace-pc \
		-include test/sim/guest/preempt.h -c -o $@ $<

build/sim/obj/test/sim/guest/%.o: test/sim/guest/%.c $(SIM_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(SIM_PG_CFLAGS) -Itest/sim/guest -c -o $@ $<

build/sim/obj/test/sim/%.o: test/sim/%.c $(SIM_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(SIM_CFLAGS) -c -o $@ $<

build/sim/guest.so: $(patsubst %.c,build/sim/obj/%.o,$(SIM_SRC) $(SIM_GUEST))
	$(CC) -shared -Wl,-Bsymbolic -Wl,-z,norelro -Wl,-z,now $(SIM_WRAPPED:%=-Wl,--wrap=%) \
		-o $@ $^ $(SIM_LIBS)

build/sim/sim: $(SIM_HOST:%.c=build/sim/obj/%.o)
	$(CC) -rdynamic -o $@ $^ -ldl

# SEED, SCHEDULES (100) or SECONDS, MUTATION; on all cores.  TRACE=1, TWICE=1 and
# DAYS on one.
SIM_OPTIONS = $(if $(MUTATION),--mutation $(MUTATION)) $(if $(TRACE),--trace) \
	$(if $(TWICE),--twice) $(if $(DAYS),--days $(DAYS))
SIM_SEED = $(or $(SEED),$(shell date +%s)000)

simulate: build/sim/sim build/sim/guest.so
ifneq ($(TRACE)$(TWICE)$(DAYS),)
	@build/sim/sim --seed $(SIM_SEED) $(if $(SCHEDULES),--schedules $(SCHEDULES)) \
		$(SIM_OPTIONS) build/sim/guest.so
else
	@test/sim/play $(SIM_SEED) $(or $(SECONDS:%=%s),$(SCHEDULES),100) $(SIM_OPTIONS)
endif

# Each mutation must be found, or be listed as one that cannot be: MUTATION, SEED
simulate-mutations: build/sim/sim build/sim/guest.so
	@SEED=$(SEED) test/sim/mutations $(MUTATION)

.PHONY: check-fast simulate-mutations kubernetes prove rivals simulate all deb dist drawing site help images matrix link-expected test demo soak chaos bench bench-quick unit unit-asan unit-valgrind $(foreach kind,unit unit-asan unit-valgrind,$(UNIT_TESTS:%=$(kind)/%))
