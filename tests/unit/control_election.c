/* Who serves the control socket: the file that is made, kept and given up, stop and go on, election and takeover, exec
 * (CONTRACT 6, E6, E11). What it answers: control_server.c. */
#include "control_served.h"

/* ---- the socket file ---- */

static bool path_is_there(void)
{
	struct stat st;
	return stat(sock, &st) == 0 && S_ISSOCK(st.st_mode);
}

static ino_t first_ino;
static bool path_is_new(void)
{
	struct stat st;
	return stat(sock, &st) == 0 && st.st_ino != first_ino && answers();
}

static int highest_socket(void)
{
	int found = -1;
	for (int fd = 3; fd < 1024; fd++) {
		int v = 0;
		socklen_t n = sizeof v;
		if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &v, &n) == 0 && v)
			found = fd;
	}
	return found;
}

static void test_file(void)
{
	struct stat st;
	stat(sock, &st);
	tap_ok((st.st_mode & 07777) == 0600, "the socket is 0600 whatever the umask (E11)");
	unlink(sock);
	tap_ok(await(path_is_there, 2500) && answers(), "a removed socket is made again within two seconds");

	stat(sock, &st);
	first_ino = st.st_ino;
	int listener = highest_socket();
	tap_ok(listener > 900, "our descriptors are high (%d) (E6)", listener);
	close(listener); /* behind our back: the hooks do not see it here */
	int mine = open("/dev/null", O_RDONLY);
	dup2(mine, listener); /* and the number is the program's now */
	tap_ok(await(path_is_new, 3000), "a listening socket closed behind our back is made again");
	tap_ok(fcntl(listener, F_GETFD) >= 0, "and the number that the program has taken is left alone (C7)");
	close(listener);
	close(mine);
}

static void test_foreign(void)
{
	int status = 0;
	if (geteuid() != 0) {
		tap_ok(true, "a foreign peer gets 403 # SKIP only root can try");
		return;
	}
	chmod(run_dir, 0755);
	chmod(sock, 0666);
	pid_t pid = fork();
	if (pid == 0) {
		if (setgid(65534) || setuid(65534))
			_exit(1);
		_exit(http_ask(sock, "GET", "/health", answer, sizeof answer) == 403 ? 0 : answer[0] ? 2 : errno);
	}
	waitpid(pid, &status, 0);
	chmod(run_dir, 0700);
	if (status)
		printf("# status %x\n", status);
	tap_ok(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a peer of another user gets 403 (E11)");
}

static void test_stop(void)
{
	bool closed;
	int kept = http_connect(sock);
	http_send(kept, "GET /health HTTP/1.1\r\n\r\n", 24);
	http_read(kept, answer, sizeof answer, http_is_whole, &closed);
	int64_t took_ms = finish();
	tap_ok(took_ms < 200 && atomic_load(&returned) == 1000,
		"control_run returns at once when told to stop (%lld ms)", (long long)took_ms);
	int waiting = http_connect(sock);
	tap_ok(waiting >= 0, "meanwhile clients queue: the socket stays open");
	http_send(waiting, "GET /health HTTP/1.1\r\n\r\n", 24);
	start();
	http_read(waiting, answer, sizeof answer, http_is_whole, &closed);
	tap_ok(http_status(answer) == 200, "and are answered when it goes on");
	http_send(kept, "GET /health HTTP/1.1\r\n\r\n", 24);
	http_read(kept, answer, sizeof answer, http_is_whole, &closed);
	tap_ok(http_status(answer) == 200 && !closed, "a kept client is still there");
	close(waiting);
	close(kept);
}

/* ---- election ---- */

static pid_t member_process(void)
{
	pid_t pid = fork();
	if (pid == 0) {
		/* A process of its own: nothing of the parent's server. */
		control_forget();
		ownfd_drop_all();
		memset(&region, 0, sizeof region);
		attach();
		atomic_store(&stop, 0);
		_exit(control_run(&host) == 1 ? 7 : 0);
	}
	return pid;
}

static pid_t owner_pid(void)
{
	return member_pid(atomic_load(&region.header->control_owner));
}

static pid_t gone;
static bool other_answers(void)
{
	return owner_pid() != gone && owner_pid() > 0 && answers();
}

static int standbys(void)
{
	return (atomic_load(&region.header->standby[0]) != 0) + (atomic_load(&region.header->standby[1]) != 0);
}
static bool two_stand_by(void)
{
	return standbys() == 2;
}
static bool one_stands_by(void)
{
	return standbys() >= 1;
}

static void test_takeover(void)
{
	pid_t pids[4];
	int status = 0;

	/* This process only looks on. */
	control_leave(&region);
	tap_ok(!path_is_there() && owner_pid() == 0, "leaving takes the socket away and lets go of it");
	pids[0] = member_process();
	tap_ok(await(answers, 3000) && owner_pid() == pids[0], "another member serves");
	pids[1] = member_process();
	await(one_stands_by, 3000);
	pids[2] = member_process();
	tap_ok(await(two_stand_by, 3000), "two stand by");
	pids[3] = member_process();
	waitpid(pids[3], &status, 0);
	tap_ok(WIFEXITED(status) && WEXITSTATUS(status) == 7, "a fourth is not needed");
	for (int i = 0; i < 2; i++) {
		gone = owner_pid();
		kill(gone, SIGKILL);
		waitpid(gone, NULL, 0);
		int64_t begun_ns = clock_now_ns();
		bool is_taken = await(other_answers, 5000);
		int64_t took_ms = (clock_now_ns() - begun_ns) / NS_PER_MS;
		tap_ok(is_taken && took_ms < 2000,
			"kill -9 of the one that serves: another does within two seconds (%lld ms)",
			(long long)took_ms);
	}
	/* The last one dies and nobody is left: a newcomer finds only the dead. */
	gone = owner_pid();
	kill(gone, SIGKILL);
	waitpid(gone, NULL, 0);
	tap_ok(control_should_run(&region), "all dead at once: the next member is told to look");
	pids[0] = member_process();
	tap_ok(await(other_answers, 3000), "and serves, over a dead owner and dead standbys");

	gone = owner_pid();
	pids[1] = member_process();
	await(one_stands_by, 3000);
	kill(pids[0], SIGKILL);
	waitpid(pids[0], NULL, 0);
	tap_ok(await(other_answers, 3000), "the standby follows once more");
	kill(pids[1], SIGKILL);
	waitpid(pids[1], NULL, 0);
}

/* ---- an owner that executes another program ---- */

static pid_t executing_process(void)
{
	pid_t pid = fork();
	if (pid == 0) {
		control_forget();
		ownfd_drop_all();
		memset(&region, 0, sizeof region);
		attach();
		start();
		execl("/bin/sleep", "sleep", "30", (char *)NULL);
		_exit(1);
	}
	return pid;
}

static pid_t execing;
static bool has_executed(void)
{
	char exe[64], to[64] = "";
	snprintf(exe, sizeof exe, "/proc/%d/exe", (int)execing);
	ssize_t n = readlink(exe, to, sizeof to - 1);
	return n > 0 && strstr(to, "control_server") == NULL;
}

static void test_exec(void)
{
	gone = execing = executing_process();
	await(has_executed, 5000);
	pid_t next = member_process();
	bool is_taken = await(other_answers, 6000);
	tap_ok(is_taken && owner_pid() == next,
		"an owner that executed another program lives and listens no more: it is passed over");
	kill(execing, SIGKILL);
	waitpid(execing, NULL, 0);
	kill(next, SIGKILL);
	waitpid(next, NULL, 0);
}

int main(void)
{
	set_up();
	tap_ok(control_should_run(&region), "nobody serves yet: control_run has something to do");
	start();
	test_file();
	test_foreign();
	test_stop();
	finish();
	test_takeover();
	test_exec();
	tear_down();
	return tap_done();
}
