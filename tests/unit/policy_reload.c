/* The configuration in force (policy.h): swapped whole while readers hold it, all or nothing, freed when nobody holds
 * it. */
#include "policy_load.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "policy/policy.h"

#define READERS 4
#define RELOADS 2000

static char file[600];

/* The file in force says n seconds twice, so that half a configuration would show. */
static void write_seconds(unsigned n)
{
	char text[300], beside[700];
	snprintf(text, sizeof text, "[destination d]\nmatch = h%u, *.x\nrecovery_timeout = %us\nrecovery_max = %us\n",
		n, n, n);
	snprintf(beside, sizeof beside, "%s", load_file("beside", text, strlen(text)));
	if (rename(beside, file) != 0)
		exit(1);
}

static uint32_t seconds(const struct config *c)
{
	struct addr a = {.family = ADDR_INET, .port = 80};
	struct target target = {.addr = &a, .name = "a.x"};
	const char *pattern;
	const struct policy *p = config_match(c, &target, &pattern);
	return strcmp(pattern, "*.x") == 0 && p->rules.recovery_ms == p->rules.recovery_max_ms
		       ? p->rules.recovery_ms / 1000
		       : 0;
}

static unsigned mappings(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	unsigned n = 0;
	for (int c; f && (c = getc(f)) != EOF;)
		n += c == '\n';
	if (f)
		fclose(f);
	return n;
}

static void test_one_after_the_other(void)
{
	char errors[2000] = "", name[600];
	struct text t = TEXT_ON(errors);
	int faults;

	tap_ok(policy_acquire() == NULL && policy_generation() == 0, "nothing is in force before the first install");
	policy_release(NULL);

	snprintf(file, sizeof file, "%s", load_file("resil.conf", "", 0));
	write_seconds(3);
	snprintf(name, sizeof name, "%s", file);
	struct config_source source = {.file = name};
	policy_set_source(&source);
	memset(name, 'x', sizeof name - 1);

	struct config_source nothing = {.file = NULL};
	struct config *built_in = config_load(&nothing, NULL, &faults);
	tap_ok(policy_install(built_in) == 0 && policy_generation() == 1, "the first install is generation 1");
	const struct config *old = policy_acquire();
	tap_ok(old == built_in, "it is in force");
	tap_ok(policy_reload(&t) == 0 && policy_generation() == 2,
		"a reload reads the source, whose strings were copied");
	const struct config *now = policy_acquire();
	tap_ok(now != old && seconds(now) == 3, "the new one is in force");
	tap_ok(config_max_destinations(old) == 512, "the old one stays readable for those who hold it");
	policy_release(old);
	policy_release(now);

	load_file("resil.conf", "[defaults]\nbreaker = maybe\nkey = x\n", 35);
	tap_ok(policy_reload(&t) == 2 && policy_generation() == 2,
		"a faulty file is not installed; the number of its faults comes back");
	tap_ok(strstr(errors, ":2: breaker") && strstr(errors, ":3: key"), "with their lines");
	now = policy_acquire();
	tap_ok(seconds(now) == 3 && !config_is_broken(now), "the last good one stays in force");
	policy_release(now);
}

static void test_all_held(void)
{
	const struct config *held[8];
	unsigned n = 0;
	for (; n < 8; n++) {
		held[n] = policy_acquire();
		write_seconds(10 + n);
		if (policy_reload(NULL) != 0)
			break;
	}
	tap_ok(n == 7, "with every holder held a reload says -EBUSY (after %u)", n);
	tap_ok(policy_reload(NULL) == -EBUSY, "and again");
	const struct config *now = policy_acquire();
	tap_ok(seconds(now) == 16, "the last one that was installed is in force");
	policy_release(now);
	for (unsigned i = 0; i <= n; i++)
		tap_expect(i == 0 || seconds(held[i]) == 9 + i, "holder %u still reads its own", i);
	tap_all("every one held is intact");
	for (unsigned i = 0; i <= n; i++)
		policy_release(held[i]);
	tap_ok(policy_reload(NULL) == 0, "once let go, it goes on");
}

static atomic_uint is_over, torn, reads, swapped, busy, other;

static void *read_on(void *unused)
{
	unsigned seen = 0;
	(void)unused;
	while (!atomic_load(&is_over)) {
		const struct config *c = policy_acquire();
		unsigned n = seconds(c);
		if (n == 0)
			atomic_fetch_add(&torn, 1);
		policy_release(c);
		seen++;
	}
	atomic_fetch_add(&reads, seen);
	return NULL;
}

static void *reload_on(void *is_writer)
{
	for (unsigned i = 0; i < RELOADS; i++) {
		if (is_writer)
			write_seconds(1 + i % 1000);
		int err = policy_reload(NULL);
		atomic_fetch_add(err == 0 ? &swapped : err == -EBUSY ? &busy : &other, 1);
	}
	return NULL;
}

static void test_threads(void)
{
	pthread_t readers[READERS], reloaders[2];
	unsigned before = mappings(), generation = policy_generation();
	for (int i = 0; i < READERS; i++)
		pthread_create(&readers[i], NULL, read_on, NULL);
	for (int i = 0; i < 2; i++)
		pthread_create(&reloaders[i], NULL, reload_on, i == 0 ? &is_over : NULL);
	for (int i = 0; i < 2; i++)
		pthread_join(reloaders[i], NULL);
	atomic_store(&is_over, 1);
	for (int i = 0; i < READERS; i++)
		pthread_join(readers[i], NULL);
	tap_ok(atomic_load(&reads) > 0 && atomic_load(&torn) == 0,
		"%u readers never saw half a configuration (%u reads, %u swaps)", READERS, atomic_load(&reads),
		atomic_load(&swapped));
	tap_ok(atomic_load(&other) == 0 && atomic_load(&swapped) + atomic_load(&busy) == 2 * RELOADS,
		"a reload beside another is done or -EBUSY (%u)", atomic_load(&busy));
	tap_ok(atomic_load(&swapped) > 0 && policy_generation() - generation == atomic_load(&swapped),
		"every swap is a generation");
	/* Threads leave stacks and arenas mapped: a leak would be one mapping a swap. */
	tap_ok(mappings() < before + 100, "old ones are freed (%u mappings, then %u)", before, mappings());
}

#ifndef __SANITIZE_THREAD__
static atomic_uint fork_over;

static void *reload_until_over(void *unused)
{
	(void)unused;
	while (!atomic_load(&fork_over))
		policy_reload(NULL);
	return NULL;
}

/* A fork in the middle of a reload leaves the flag of a thread that the child does not have. */
static void test_fork(void)
{
	pthread_t thread;
	unsigned done = 0;
	pthread_create(&thread, NULL, reload_until_over, NULL);
	for (int i = 0; i < 100; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			const struct config *c = policy_acquire();
			bool is_right = c && seconds(c) > 0;
			policy_release(c);
			_exit(is_right && policy_reload(NULL) == 0 ? 0 : 1);
		}
		int status;
		done += pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
	}
	atomic_store(&fork_over, 1);
	pthread_join(thread, NULL);
	tap_ok(done == 100, "E4: a child forked in the middle of a reload reloads on its own (%u of 100)", done);
}
#endif

int main(void)
{
	load_mk_dir();
	test_one_after_the_other();
	test_all_held();
	test_threads();
#ifndef __SANITIZE_THREAD__
	test_fork();
#endif
	return tap_done();
}
