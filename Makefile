# resil: see README.md. `make` builds build/libresil.so and build/resil; V=1 shows the commands.
PREFIX ?= /usr/local
DESTDIR ?=
CC ?= gcc
ifeq ($(origin CC),default)
CC = gcc
endif
BUILD ?= build
VERSION := 0.1.0

LLHTTP_SRC := /usr/share/llhttp
LLHTTP_INC := /usr/share/include/llhttp

WARN := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla
CFLAGS ?= -O2 -g
ALL_CFLAGS := -std=gnu11 $(CFLAGS) $(WARN) -fPIC -fvisibility=hidden -ftls-model=initial-exec -fno-strict-aliasing \
	-U_FORTIFY_SOURCE -fstack-protector-strong -D_GNU_SOURCE -DRESIL_VERSION='"$(VERSION)"' \
	-Isrc -isystem $(LLHTTP_INC) $(EXTRA_CFLAGS)
ALL_LDFLAGS := $(LDFLAGS) $(EXTRA_LDFLAGS) -Wl,-z,now -Wl,-z,relro -Wl,-z,noexecstack

# Rooms of the library half; the command takes them too, but for the hooks.
SHARED_ROOMS := base core wire policy engine control
shared_src := $(foreach room,$(SHARED_ROOMS),$(wildcard src/$(room)/*.c))
hook_src := $(wildcard src/hook/*.c src/hook/*.S)
cli_src := $(wildcard src/cli/*.c)
obj = $(patsubst %,$(BUILD)/obj/%.o,$(basename $(1)))
llhttp_obj := $(BUILD)/obj/llhttp/llhttp.o $(BUILD)/obj/llhttp/api.o $(BUILD)/obj/llhttp/http.o

# Where one target makes others: on all processors, unless the caller has said on how many.
MAKE_ALL = $(MAKE) --no-print-directory $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))

# Quiet but for a word a file; V=1 shows the commands instead.
Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-5s %s\n' '$(1)' '$(2)')

.PHONY: all
all: $(BUILD)/libresil.so $(BUILD)/resil

$(BUILD)/obj/%.o: %.c | deps-build
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c $< -o $@

$(BUILD)/obj/%.o: %.S | deps-build
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c $< -o $@

# The source is named in the recipe only: on a bare machine it is there once deps-build has run.
$(llhttp_obj): $(BUILD)/obj/llhttp/%.o: | deps-build
	@mkdir -p $(@D)
	$(call say,CC,$(LLHTTP_SRC)/$*.c)
	$(Q)$(CC) -std=gnu11 $(CFLAGS) -fPIC -fvisibility=hidden -DLLHTTP_EXPORT= -I$(LLHTTP_INC) $(EXTRA_CFLAGS) -c $(LLHTTP_SRC)/$*.c -o $@

# Where the installed shim is looked for is the one thing that PREFIX is compiled into: another PREFIX, another object.
prefix_stamp := $(BUILD)/prefix
ifneq ($(PREFIX),$(shell cat $(prefix_stamp) 2>/dev/null))
.PHONY: $(prefix_stamp)
endif
$(prefix_stamp):
	@mkdir -p $(@D)
	@printf '%s' '$(PREFIX)' >$@
$(BUILD)/obj/src/cli/run.o: $(prefix_stamp)
$(BUILD)/obj/src/cli/run.o: ALL_CFLAGS += -DRESIL_PREFIX='"$(PREFIX)"'

# scripts/sanitize puts fences around the region (tests/torture/fenced.h).
REGION_CFLAGS ?=
$(BUILD)/obj/src/core/region.o: ALL_CFLAGS += $(REGION_CFLAGS)

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)

# The shim: nothing but libc is shared, nothing but the taken names is let out.
exports := $(BUILD)/exports.map
$(exports): src/hook/exports.map.in src/base/taken.h | deps-build
	@mkdir -p $(@D)
	$(call say,CPP,$@)
	$(Q)$(CC) -E -P -x c -Isrc $< -o $@

define link_shim
	$(call say,LINK,$@)
	$(Q)$(CC) -shared $(ALL_CFLAGS) -o $@ $(filter %.o,$^) $(ALL_LDFLAGS) -Wl,-soname,libresil.so -Wl,--version-script=$(exports) \
		-Wl,-Bsymbolic-functions -Wl,--exclude-libs,ALL -Wl,--no-undefined -Wl,--as-needed -l:libinih.a -ldl -lpthread
endef
$(BUILD)/libresil.so: $(call obj,$(shared_src) $(hook_src)) $(llhttp_obj) $(exports)
	$(link_shim)

# For tests, the shim whose detours the environment names (tests/lib/detour.bash): three objects of its own, the others are the shim's.
detoured := $(BUILD)/detoured/libresil.so
detoured_src := src/engine/connect.c src/engine/detour_test.c src/engine/everyday.c
detoured_obj := $(patsubst %.c,$(BUILD)/obj/detoured/%.o,$(detoured_src))
$(detoured_obj): $(BUILD)/obj/detoured/%.o: %.c | deps-build
	@mkdir -p $(@D)
	$(call say,CC,$< (detoured))
	$(Q)$(CC) $(ALL_CFLAGS) -DRESIL_TEST_DETOUR -MMD -MP -c $< -o $@
$(detoured): $(call obj,$(filter-out $(detoured_src),$(shared_src)) $(hook_src)) $(detoured_obj) $(llhttp_obj) $(exports)
	@mkdir -p $(@D)
	$(link_shim)

# The command: the same rooms without engine and hooks; curses for `resil top`, linked statically like the rest (its terminal
# descriptions are in Debian's base). A distribution has it shared: CURSES='-lncursesw -ltinfo'.
CURSES ?= -l:libncursesw.a -l:libtinfo.a
command_src := $(filter-out src/engine/% src/base/real.c src/base/tls_library.c,$(shared_src)) $(cli_src)
$(BUILD)/resil: $(call obj,$(command_src)) $(llhttp_obj)
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -o $@ $(filter %.o,$^) $(ALL_LDFLAGS) -l:libinih.a $(CURSES) -lpthread

# Unit tests: one program a file, linked with the rooms it proves. In a source, as in a harness for fuzzing: `// link: -lfoo` adds to the
# link line.
link_flags = $$(sed -n 's|^// link: ||p' $<)
unit_src := $(filter-out src/engine/% src/base/real.c src/base/tls_library.c,$(shared_src)) src/engine/wheel.c
# What of the engine stands without a descriptor's table or a process: an archive, so that a test gives only what it calls.
ends_src := $(patsubst %,src/engine/%.c,cache cache_store onward relay reply served spool status)
$(BUILD)/unit-ends.a: $(call obj,$(ends_src))
	@mkdir -p $(@D)
	$(Q)rm -f $@ && ar crs $@ $^
unit_tests := $(patsubst tests/unit/%.c,$(BUILD)/unit/%,$(wildcard tests/unit/*.c))
$(BUILD)/unit/%: tests/unit/%.c $(call obj,$(unit_src)) $(llhttp_obj) $(BUILD)/unit-ends.a
	@mkdir -p $(@D)
	$(call say,TEST,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -Itests/unit -MMD -MP -MF $(BUILD)/obj/unit-$*.d -o $@ $< $(filter %.o,$^) $(BUILD)/unit-ends.a $(ALL_LDFLAGS) -l:libinih.a -lpthread \
		$(link_flags)

# The circuit against its model, and processes under the shim, too: beside the unit tests in check, at length by `make model`.
MODEL_HISTORIES ?= 10000000
MODEL_REPLAYED ?= 200
$(BUILD)/unit/model_%: tests/model/%.c tests/model/model.h tests/unit/tap.h $(call obj,$(unit_src)) $(llhttp_obj)
	@mkdir -p $(@D)
	$(call say,TEST,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -Itests/unit -MMD -MP -MF $(BUILD)/obj/model-$*.d -o $@ $< $(filter %.o,$^) $(ALL_LDFLAGS) -l:libinih.a -lpthread
model_tests := $(patsubst tests/model/%.c,$(BUILD)/unit/model_%,$(wildcard tests/model/*.c))

# Processes under the shim, killed and stopped at random: `make torture`.
TORTURE_SECONDS ?= 120
$(BUILD)/torture: tests/torture/torture.c tests/unit/tap.h $(call obj,$(unit_src)) $(llhttp_obj)
	@mkdir -p $(@D)
	$(call say,TEST,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -Itests/unit -MMD -MP -MF $(BUILD)/obj/torture.d -o $@ $< $(filter %.o,$^) $(ALL_LDFLAGS) -l:libinih.a -lpthread
.PHONY: torture
torture: all $(BUILD)/torture
	@env -u LD_PRELOAD RESIL_TEST_SHIM=$(abspath $(BUILD))/libresil.so sh -c '$(BUILD)/torture $(TORTURE_SECONDS) && $(BUILD)/torture scribble 10'

# The lock-free parts under every order of their steps: src/core compiled so that each atomic operation is one.
points_obj := $(patsubst src/core/%.c,$(BUILD)/obj/points/%.o,$(wildcard src/core/*.c))
$(points_obj): $(BUILD)/obj/points/%.o: src/core/%.c tests/interleave/points.h | deps-build
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -include tests/interleave/points.h -MMD -MP -c $< -o $@
$(BUILD)/interleave: tests/interleave/interleave.c tests/unit/tap.h $(points_obj) $(call obj,$(filter-out src/base/real.c src/base/tls_library.c,$(wildcard src/base/*.c)))
	@mkdir -p $(@D)
	$(call say,TEST,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -Itests/unit -MMD -MP -MF $(BUILD)/obj/interleave.d -o $@ $< $(filter %.o,$^) $(ALL_LDFLAGS) -lpthread

.PHONY: unit model
unit: $(unit_tests) $(model_tests) $(BUILD)/interleave $(BUILD)/torture
model: all $(model_tests) $(BUILD)/interleave
	$(BUILD)/unit/model_circuit histories $(MODEL_HISTORIES)
	env -u LD_PRELOAD RESIL_TEST_SHIM=$(abspath $(BUILD))/libresil.so $(BUILD)/unit/model_replay $(MODEL_REPLAYED)
	$(BUILD)/interleave all

# Fuzzing: tests/fuzz/NAME.c stands on the rooms that take foreign bytes; its corpus is tests/fuzz/corpus/NAME. An archive, so that a harness
# may take in a file of them and replace what it calls.
FUZZ_SECONDS ?= 60
fuzz_flags := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined -fsanitize=fuzzer-no-link
fuzz_src := $(filter-out src/base/real.c src/base/tls_library.c,$(foreach room,base core wire policy control,$(wildcard src/$(room)/*.c))) $(ends_src)
fuzz_names := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/*.c))
$(BUILD)/fuzz/rooms.a: $(call obj,$(fuzz_src)) $(llhttp_obj)
	@mkdir -p $(@D)
	rm -f $@
	ar crs $@ $^
$(BUILD)/fuzz/%: tests/fuzz/%.c $(BUILD)/fuzz/rooms.a
	$(CC) $(ALL_CFLAGS) -fsanitize=fuzzer -Itests/fuzz -MMD -MP -MF $(BUILD)/obj/fuzz-$*.d -o $@ $< $(BUILD)/fuzz/rooms.a \
		$(ALL_LDFLAGS) -l:libinih.a -lpthread $(link_flags)

.PHONY: fuzz fuzz-build sanitize sanitize-build
fuzz-build: $(addprefix $(BUILD)/fuzz/,$(fuzz_names))
fuzz:
	@scripts/deps fuzz
	@$(MAKE_ALL) fuzz-build BUILD=$(BUILD)/clang-fuzz CC=clang CFLAGS='$(fuzz_flags) -Werror'
	@BUILD=$(BUILD)/clang-fuzz FUZZ_SECONDS=$(FUZZ_SECONDS) FUZZ_SEED=$(FUZZ_SEED) scripts/fuzz $(FUZZ)

# The unit tests under ASan with UBSan, then under TSan; and gcc's analyzer over all of the source. sanitize-build does what needs processors
# alone: it builds them and analyzes; what a later sanitize then repeats of it is nothing.
sanitize sanitize-build:
	@scripts/deps check
	@BUILD=$(BUILD) CC='$(CC)' scripts/sanitize $(if $(filter %-build,$@),build)

.PHONY: deps-build demo check
deps-build:
	@scripts/deps build
demo:
	@scripts/deps demo
	@$(MAKE_ALL) all
	@scripts/demo
check:
	@scripts/deps check
	@$(MAKE_ALL) all unit $(detoured)
	@BUILD=$(BUILD) scripts/check

# Long: sixteen clients against every way in which a server fails (three of them are part of check), and the shim against a system that
# refuses it something at every place in turn.
LONG ?= tests/long/*.bats
.PHONY: long
long:
	@scripts/deps $(if $(findstring databases,$(wildcard $(LONG))),long,check)
	@$(MAKE_ALL) all unit
	@BUILD=$(BUILD) FILE_TIMEOUT=900 scripts/check $(LONG)

# Longer: programs at full load against servers that fail at random; a short form is part of long.
SOAK_SECONDS ?= 1200
.PHONY: soak
soak:
	@scripts/deps check
	@$(MAKE_ALL) all unit
	@BUILD=$(BUILD) SOAK_SECONDS=$(SOAK_SECONDS) FILE_TIMEOUT=$$(($(SOAK_SECONDS) + 300)) scripts/check tests/long/soak.bats

# Long: other people's suites under the shim and without.
.PHONY: conformance
conformance:
	@scripts/deps conformance
	@$(MAKE_ALL) all
	@BUILD=$(BUILD) scripts/conformance

# What the shim costs (doc/performance.md): counts against budgets, gating; times against others, not gating.
.PHONY: bench bench-wall
bench:
	@scripts/deps bench
	@$(MAKE_ALL) all
	@BUILD=$(BUILD) scripts/bench all
bench-wall:
	@scripts/deps bench-wall
	@$(MAKE_ALL) all
	@BUILD=$(BUILD) scripts/bench wall

# The example belongs in /etc/resil. Who may not write there (PREFIX in a home) has it under PREFIX.
conf_in := $(DESTDIR)/etc/resil
own_conf_in := $(DESTDIR)$(PREFIX)/etc/resil
.PHONY: install uninstall
install: all
	$(Q)install -D -m 755 $(BUILD)/libresil.so $(DESTDIR)$(PREFIX)/lib/libresil.so
	$(Q)install -D -m 755 $(BUILD)/resil $(DESTDIR)$(PREFIX)/bin/resil
	$(Q)install -D -m 644 doc/resil.1 $(DESTDIR)$(PREFIX)/share/man/man1/resil.1
	$(Q)install -D -m 644 doc/resil.conf.5 $(DESTDIR)$(PREFIX)/share/man/man5/resil.conf.5
	$(Q)install -D -m 644 doc/libresil.7 $(DESTDIR)$(PREFIX)/share/man/man7/libresil.7
	$(Q)install -D -m 644 conf/completion/resil.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/resil
	$(Q)install -D -m 644 conf/completion/_resil $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_resil
	$(Q)install -D -m 644 conf/completion/resil.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/resil.fish
	$(Q)if mkdir -p $(conf_in) 2>/dev/null && [ -w $(conf_in) ]; then \
		install -m 644 conf/resil.conf $(conf_in)/resil.conf.example && \
		echo 'the example of a configuration is $(conf_in)/resil.conf.example'; \
	else \
		install -D -m 644 conf/resil.conf $(own_conf_in)/resil.conf.example && \
		echo '$(conf_in) cannot be written: the example of a configuration is $(own_conf_in)/resil.conf.example;' && \
		echo 'programs read ~/.config/resil/resil.conf'; \
	fi
	@echo 'installed under $(DESTDIR)$(PREFIX)'
ifneq ($(PREFIX),/usr/local)
	@echo 'the command: PATH=$(PREFIX)/bin:$$PATH; the shim without it: LD_PRELOAD=$(PREFIX)/lib/libresil.so'
endif
uninstall:
	rm -f $(DESTDIR)$(PREFIX)/lib/libresil.so $(DESTDIR)$(PREFIX)/bin/resil $(own_conf_in)/resil.conf.example \
		$(DESTDIR)$(PREFIX)/share/man/man1/resil.1 $(DESTDIR)$(PREFIX)/share/man/man5/resil.conf.5 \
		$(DESTDIR)$(PREFIX)/share/man/man7/libresil.7 \
		$(DESTDIR)$(PREFIX)/share/bash-completion/completions/resil $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_resil \
		$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/resil.fish
	-@[ ! -w $(conf_in) ] || rm -f $(conf_in)/resil.conf.example
	-@rmdir $(conf_in) $(own_conf_in) 2>/dev/null || true

# The Debian package, built from a copy so that nothing of it lies about here; lintian's errors are errors (but for
# the maintainer's address, which is whoever uploads it). deb-check installs, runs, replaces and
# removes it in an overlay of this very system (root).
deb_dir := $(BUILD)/deb
.PHONY: deb deb-check
deb:
	@scripts/deps deb
	rm -rf $(deb_dir) && mkdir -p $(deb_dir)/resil-$(VERSION)
	tar -c --exclude=./build --exclude='./build-*' --exclude=./.git --exclude=$(abspath $(BUILD)) . | tar -x -C $(deb_dir)/resil-$(VERSION)
	cd $(deb_dir)/resil-$(VERSION) && env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u BUILD dpkg-buildpackage -us -uc -b --build=binary
	lintian --fail-on error --suppress-tags bogus-mail-host,bogus-mail-host-in-debian-changelog $(deb_dir)/*.changes
deb-check:
	@scripts/deps check deb
	@$(MAKE_ALL) all deb
	@BUILD=$(BUILD) scripts/check tests/package/deb.bats

# From a bare Debian in a folder on (root, a mirror, many minutes): the README's commands until a service is guarded and seen, the
# container's recipe, the package.
.PHONY: machine-check
machine-check:
	@scripts/deps machine
	@$(MAKE_ALL) all deb
	@BUILD=$(BUILD) FILE_TIMEOUT=5400 scripts/check tests/package/machine.bats

c_files := $(wildcard src/*/*.[ch] tests/unit/*.[ch] tests/model/*.[ch] tests/torture/*.[ch] tests/interleave/*.[ch] tests/fuzz/*.[ch] tests/programs/*.[ch])
.PHONY: format lint clean
format:
	@scripts/deps lint
	clang-format -i $(c_files)
lint:
	@scripts/deps lint
	cppcheck --quiet --std=c11 --language=c --enable=warning,performance,portability --inline-suppr --suppress=missingIncludeSystem --suppress=allocaCalled \
		--error-exitcode=1 -D_GNU_SOURCE -D__x86_64__ -Isrc $(wildcard src/*/*.c)
	clang-tidy --quiet --warnings-as-errors='*' $(wildcard src/*/*.c) -- $(filter-out -MMD -MP,$(ALL_CFLAGS)) -DRESIL_PREFIX='"$(PREFIX)"'
clean:
	rm -rf $(BUILD)
