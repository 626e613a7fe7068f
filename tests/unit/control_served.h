/* What the tests of the served socket share: a real region, a thread that serves, and questions put to it. */
#ifndef RESIL_TESTS_CONTROL_SERVED_H
#define RESIL_TESTS_CONTROL_SERVED_H

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/ownfd.h"
#include "base/sys.h"
#include "control/control.h"
#include "control_help.h"
#include "core/circuit.h"
#include "core/events.h"
#include "core/identity.h"
#include "core/member.h"
#include "core/registry.h"
#include "policy/policy.h"
#include "tap.h"

static char state_dir[64], run_dir[64], conf[128], sock[108], answer[1 << 20];
static const char *base_dir;
static struct region region;
static _Atomic uint32_t stop;
static _Atomic int returned;

static struct region *the_region(void)
{
	return &region;
}

static struct control_host host = {.group = "app", .exe = "app", .region = the_region, .stop = &stop};

static void attach(void)
{
	char file[128];
	int why;
	if (!identity_region_file(file, sizeof file, "app", 0) ||
		region_attach(&region, state_dir, file, "app", 64, &why) || !region.is_shared)
		abort();
	member_join(&region, getpid(), identity_start_ticks(getpid(), NULL), "app", clock_now_ns());
}

static void *serve(void *arg)
{
	(void)arg;
	atomic_store(&returned, control_run(&host) + 1000);
	return NULL;
}

static pthread_t thread;

static bool await(bool (*is_so)(void), int64_t limit_ms)
{
	for (int64_t until_ns = clock_now_ns() + limit_ms * NS_PER_MS; clock_now_ns() < until_ns; usleep(2000))
		if (is_so())
			return true;
	return is_so();
}

static bool answers(void)
{
	static char small[4096];
	return http_ask(sock, "GET", "/v1/members", small, sizeof small) == 200;
}

static void start(void)
{
	atomic_store(&stop, 0);
	pthread_create(&thread, NULL, serve, NULL);
	if (!await(answers, 5000)) {
		printf("Bail out! the server does not answer\n");
		exit(1);
	}
}

/* How long control_run took to return, in ms. */
static int64_t finish(void)
{
	int64_t begun_ns = clock_now_ns();
	atomic_store(&stop, 1);
	control_wake();
	pthread_join(thread, NULL);
	return (clock_now_ns() - begun_ns) / NS_PER_MS;
}

/* Directories, a configuration that is built in, a region with this process as its member. */
static void set_up(void)
{
	static char base[] = "/tmp/resil-control-XXXXXX";
	struct config_source none = {0};
	int faults;
	char errors_at[1024];
	struct text errors = TEXT_ON(errors_at);

	signal(SIGPIPE, SIG_DFL); /* nothing here may raise it */
	umask(0);
	if (!mkdtemp(base))
		abort();
	chmod(base, 0711); /* a foreign peer is to come as far as the socket */
	base_dir = base;
	snprintf(state_dir, sizeof state_dir, "%s/state", base);
	snprintf(run_dir, sizeof run_dir, "%s/run", base);
	snprintf(conf, sizeof conf, "%s/bad.conf", base);
	if (identity_make_dir(state_dir) || identity_make_dir(run_dir))
		abort();
	host.runtime_dir = run_dir;
	if (!identity_socket_path(sock, sizeof sock, run_dir, "app", 0))
		abort();
	struct config *c = config_load(&none, &errors, &faults);
	if (!c || policy_install(c))
		abort();
	/* A file that is not there yet: a test may write a wrong one. */
	struct config_source source = {.file = conf, .is_optional = true};
	policy_set_source(&source);
	attach();
}

static void tear_down(void)
{
	char command[128];
	snprintf(command, sizeof command, "rm -rf %s", base_dir);
	if (system(command) != 0)
		printf("# %s stays\n", base_dir);
}

#endif
