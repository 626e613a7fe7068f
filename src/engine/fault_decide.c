/* See fault_decide.h. Any thread, also in signal handlers; no lock. Only where faults are in force. */
#include "engine/fault_decide.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/env.h"
#include "base/hash.h"
#include "base/sys.h"
#include "core/circuit.h"
#include "core/events.h"
#include "core/faults.h"
#include "engine/guest.h"

#define LINE_MAX_BYTES 420
/* Turns that are looked at in one go to know how many of them are hits. */
#define TURNS_MAX (1u << 20)

static char journal[512], replay[512];
static uint64_t run, own_seed;
static bool has_own_seed;
static int64_t started_ns;

static const char *const call_names[FAULT_CALL_COUNT] = {"connect", "resolve", "send", "recv"};

static uint64_t number_of(const char *s)
{
	uint64_t v = 0;
	size_t n = strspn(s, "0123456789");
	if (n == 0 || n > 19 || s[n])
		return hash_mix(hash_bytes(HASH_START, s, strlen(s)));
	for (size_t i = 0; i < n; i++)
		v = v * 10 + (uint64_t)(s[i] - '0');
	return v;
}

void fault_decide_init(void)
{
	const char *seed = env_at_start("RESIL_SEED"), *its_run = env_at_start("RESIL_RUN"),
		   *to = env_at_start("RESIL_JOURNAL"), *from = env_at_start("RESIL_REPLAY");
	started_ns = clock_now_ns();
	if (seed && *seed) {
		own_seed = number_of(seed);
		has_own_seed = true;
		circuit_set_seed(own_seed);
	}
	/* "NS": when `resil run` began, which also tells one run from another. */
	if (its_run && *its_run) {
		run = number_of(its_run);
		if ((int64_t)run > 0 && (int64_t)run < started_ns)
			started_ns = (int64_t)run;
	}
	text_copy(journal, sizeof journal, to ? to : "");
	text_copy(replay, sizeof replay, from ? from : "");
}

static uint64_t seed_of(struct region *r)
{
	return has_own_seed ? own_seed : faults_seed(r);
}

static uint64_t mix_text(uint64_t h, const char *s)
{
	return hash_mix(hash_bytes(h, s, strlen(s) + 1));
}

/* ---- replay ---- */

/* The hits of a journal: a hash table of their keys, open. */
static struct {
	_Atomic uint32_t state; /* 0: not read, 1: being read, 2: there */
	uint64_t *key;
	uint64_t size; /* a power of two, 0: empty */
} hits;

static uint64_t hit_key(const char *name, const char *call, uint64_t number, const char *destination)
{
	return mix_text(mix_text(mix_text(HASH_START, name), call) ^ hash_mix(number), destination) | 1;
}

static void keep_hit(uint64_t key)
{
	uint64_t i = key & (hits.size - 1);
	while (hits.key[i] && hits.key[i] != key)
		i = (i + 1) & (hits.size - 1);
	hits.key[i] = key;
}

/* "hit NAME CALL NUMBER DESTINATION" */
static void read_hit(char *line)
{
	char *word[5];
	for (int i = 0; i < 5; i++) {
		word[i] = line;
		if (i < 4) {
			line += strcspn(line, " ");
			if (!*line)
				return;
			*line++ = '\0';
		}
	}
	if (strcmp(word[0], "hit") == 0)
		keep_hit(hit_key(word[1], word[2], number_of(word[3]), word[4]));
}

static void read_journal(void)
{
	struct stat st;
	int fd = sys_open(replay, O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return;
	if (sys_fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0) {
		size_t n = (size_t)st.st_size, done = 0;
		uint64_t size = 64;
		while (size < n / 8)
			size *= 2;
		char *text = sys_mmap(n + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		uint64_t *table =
			sys_mmap(size * sizeof *table, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (!sys_is_error(text) && !sys_is_error(table)) {
			ssize_t got;
			while (done < n && (got = sys_read(fd, text + done, n - done)) > 0)
				done += (size_t)got;
			hits.key = table;
			hits.size = size;
			for (char *line = text; line < text + done;) {
				char *end = line + strcspn(line, "\n");
				*end = '\0';
				char *next = end + 1;
				read_hit(line);
				line = next;
			}
		}
		if (!sys_is_error(text))
			sys_munmap(text, n + 1);
	}
	sys_close(fd);
}

static bool was_hit(uint64_t key)
{
	uint32_t none = 0;
	if (atomic_load_explicit(&hits.state, memory_order_acquire) == 0 &&
		atomic_compare_exchange_strong(&hits.state, &none, 1)) {
		read_journal();
		atomic_store_explicit(&hits.state, 2, memory_order_release);
	}
	/* Another thread reads it: its first calls must not be lost. Not for ever: we may have interrupted it. */
	for (int i = 0; i < 10000 && atomic_load_explicit(&hits.state, memory_order_acquire) == 1; i++)
		sys_poll(NULL, 0, &(struct timespec){0, 100000});
	if (atomic_load_explicit(&hits.state, memory_order_acquire) != 2)
		return false;
	for (uint64_t i = key & (hits.size - 1), tries = 0; tries < hits.size; i = (i + 1) & (hits.size - 1), tries++) {
		if (hits.key[i] == key)
			return true;
		if (!hits.key[i])
			return false;
	}
	return false;
}

void fault_decide_forked(void)
{
	uint32_t reading = 1;
	atomic_compare_exchange_strong(&hits.state, &reading, 0);
}

/* ---- the decision ---- */

static int64_t begun_ns(const struct fault_rule *f)
{
	return f->number ? f->begun_ns : started_ns;
}

int64_t fault_ends_ns(const struct fault_rule *f)
{
	int64_t until = f->until_ns ? f->until_ns : INT64_MAX, so_long = (int64_t)f->value[FAULT_FOR];
	int64_t end = so_long ? begun_ns(f) + (int64_t)f->value[FAULT_AFTER] + so_long : INT64_MAX;
	return end < until ? end : until;
}

bool fault_is_on(const struct fault_rule *f, int64_t now_ns)
{
	return now_ns - begun_ns(f) >= (int64_t)f->value[FAULT_AFTER] && now_ns < fault_ends_ns(f);
}

/* In millionths, as it has grown so far. */
static uint64_t percent_of(const struct fault_rule *f, int64_t now_ns)
{
	int64_t since = now_ns - begun_ns(f) - (int64_t)f->value[FAULT_AFTER], ramp = (int64_t)f->value[FAULT_RAMP];
	uint64_t percent = f->value[FAULT_PERCENT];
	return ramp && since < ramp ? (uint64_t)((__int128)percent * since / ramp) : percent;
}

static bool chance(uint64_t choice, uint64_t turn, uint64_t millionths)
{
	return (hash_mix(choice ^ hash_mix(turn + 1)) >> 20) % 1000000 < millionths;
}

/* Is this turn among the first `count` hits? How many there were before it is a fact of the numbers alone, so that what
 * is known of it (known: turns, and hits among them) may be kept by anybody. */
static bool is_within_count(
	struct fault_count *c, uint64_t choice, uint64_t turn, uint64_t millionths, uint64_t count, bool is_ramped)
{
	if (count == FAULT_UNLIMITED)
		return true;
	if (millionths >= 1000000)
		return turn < count;
	uint64_t known = atomic_load_explicit(&c->known, memory_order_relaxed);
	uint64_t turns = known >> 32, found = known & 0xffffffff;
	if (turns > turn)
		turns = found = 0;
	if (is_ramped || turn - turns > TURNS_MAX || turn > UINT32_MAX) {
		/* What the percentage was then is not known any more: as many as were counted. */
		return atomic_load_explicit(&c->hits, memory_order_relaxed) < count;
	}
	for (; turns < turn && found < count; turns++)
		found += chance(choice, turns, millionths);
	atomic_store_explicit(&c->known, turns << 32 | found, memory_order_relaxed);
	return found < count;
}

static void write_journal(bool is_hit, const char *name, const char *call, uint64_t number, const char *destination)
{
	char line[LINE_MAX_BYTES];
	struct text t = TEXT_ON(line);
	if (!journal[0] || guest_is_restricted())
		return;
	text_fmt(
		&t, "%s %s %s %llu %s\n", is_hit ? "hit" : "miss", name, call, (unsigned long long)number, destination);
	int fd = sys_open(journal, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	if (fd < 0)
		return;
	sys_write(fd, t.at, t.len);
	sys_close(fd);
}

/* The first one, and then one a second for as long as it goes on. */
static void tell(struct region *r, struct fault_count *c, const struct fault_rule *f, const char *destination,
	uint64_t so_many, int64_t now_ns)
{
	int64_t told = atomic_load_explicit(&c->told_ns, memory_order_relaxed);
	if (so_many > 1 && now_ns - told < NS_PER_S)
		return;
	if (!atomic_compare_exchange_strong(&c->told_ns, &told, now_ns))
		return;
	struct event e = {.type = EVENT_FAULT, .value = (int64_t)so_many, .retry_after_ms = -1};
	struct text reason = TEXT_ON(e.reason);
	text_fmt(&reason, "%s (%s)", f->name, fault_type_name((enum fault_type)f->type));
	text_copy(e.destination, sizeof e.destination, destination);
	events_add(r, &e);
}

/* Of the rule alone, whatever it is called in whichever process: a section that was changed counts anew. */
static uint64_t key_of(const struct fault_rule *f, enum fault_call call)
{
	uint64_t h = mix_text(HASH_START ^ hash_mix(f->number ? f->number : run), f->name);
	h = hash_bytes(h, f->value, sizeof f->value);
	return hash_mix(h ^ hash_mix((uint64_t)f->type << 8 | (uint64_t)call));
}

bool fault_decide(
	const struct fault_rule *f, const char *destination, enum fault_call call, int64_t now_ns, uint64_t *seed)
{
	struct region *r = guest_region(now_ns);
	struct fault_count *c;
	if (!r || guest_is_bypassed(r) || !fault_is_on(f, now_ns) ||
		!(c = faults_count(r, key_of(f, call), f->name, destination, now_ns)))
		return false;
	uint64_t n = atomic_fetch_add_explicit(&c->calls, 1, memory_order_relaxed);
	uint64_t choice = mix_text(mix_text(hash_mix(seed_of(r)), f->name), destination) ^ hash_mix(call);
	bool is_hit = false;
	if (replay[0]) {
		is_hit = was_hit(hit_key(f->name, call_names[call], n, destination));
	} else if (n >= f->value[FAULT_SKIP] && (n - f->value[FAULT_SKIP]) % f->value[FAULT_EVERY] == 0) {
		uint64_t turn = (n - f->value[FAULT_SKIP]) / f->value[FAULT_EVERY], percent = percent_of(f, now_ns);
		is_hit = chance(choice, turn, percent) &&
			 is_within_count(c, choice, turn, percent, f->value[FAULT_COUNT], f->value[FAULT_RAMP] != 0);
	}
	if (seed)
		*seed = hash_mix(choice + n);
	write_journal(is_hit, f->name, call_names[call], n, destination);
	if (is_hit)
		tell(r, c, f, destination, atomic_fetch_add_explicit(&c->hits, 1, memory_order_relaxed) + 1, now_ns);
	return is_hit;
}
