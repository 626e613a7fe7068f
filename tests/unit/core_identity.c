/* Groups, directories and names of files (core/identity.h; E11). */
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/identity.h"
#include "core/region.h"
#include "tap.h"

#define WORDS 12

static const struct {
	const char *exe;
	const char *argv[WORDS];
	const char *group;
} rows[] = {
	{"/usr/bin/curl", {"curl", "http://x/"}, "curl"},
	{"/usr/bin/curl (deleted)", {"curl"}, "curl"},
	{"/usr/bin/python3.11", {"python3", "-u", "-W", "error", "/srv/app.py", "x"}, "python3.11-app.py"},
	{"/usr/bin/python3.11", {"python3", "-m", "http.server", "8000"}, "python3.11-http.server"},
	{"/usr/bin/python3.11", {"python3", "-um", "http.server"}, "python3.11-http.server"},
	{"/usr/bin/python3.11", {"python3", "-mhttp.server"}, "python3.11-http.server"},
	{"/usr/bin/python3.11", {"python3", "-c", "import x", "a.py"}, "python3.11"},
	{"/usr/bin/python3.11", {"python3", "-Ic", "import x", "a.py"}, "python3.11"},
	{"/usr/bin/python3.11", {"python3", "-Werror", "-X", "dev", "-Xutf8", "a.py"}, "python3.11-a.py"},
	{"/usr/bin/python3.11", {"python3", "--check-hash-based-pycs", "never", "a.py"}, "python3.11-a.py"},
	{"/usr/bin/python3.11", {"python3", "-"}, "python3.11"},
	{"/usr/bin/python3.11", {"python3"}, "python3.11"},
	{"/usr/bin/python3.11", {"python3", "--", "-odd.py"}, "python3.11--odd.py"},
	{"/usr/bin/python3.11", {"python3", "/srv/app/"}, "python3.11-app"},
	{"/usr/bin/perl", {"perl", "-Ilib", "-w", "s.pl"}, "perl-s.pl"},
	{"/usr/bin/perl", {"perl", "-I", "lib", "-MFoo=e", "bin/s.pl"}, "perl-s.pl"},
	{"/usr/bin/perl", {"perl", "-wne", "print", "file"}, "perl"},
	{"/usr/bin/perl", {"perl", "-i.bak", "s.pl"}, "perl-s.pl"},
	{"/usr/bin/perl", {"perl", "-0777", "-ne", "1", "f"}, "perl"},
	{"/usr/bin/ruby3.1", {"ruby", "-rjson", "x.rb"}, "ruby3.1-x.rb"},
	{"/usr/bin/ruby3.1", {"ruby", "-r", "json", "-W0", "/a/x.rb"}, "ruby3.1-x.rb"},
	{"/usr/bin/ruby3.1", {"ruby", "-e", "puts 1", "x.rb"}, "ruby3.1"},
	{"/usr/bin/ruby3.1", {"ruby", "--encoding", "utf-8", "x.rb"}, "ruby3.1-x.rb"},
	{"/usr/bin/ruby3.1", {"ruby", "--enable=jit", "x.rb"}, "ruby3.1-x.rb"},
	{"/usr/bin/node", {"node", "--require", "x", "app.js"}, "node-app.js"},
	{"/usr/bin/node", {"node", "-r", "x", "--max-old-space-size=100", "app.js"}, "node-app.js"},
	{"/usr/bin/node", {"node", "--import=x", "lib/app.mjs"}, "node-app.mjs"},
	{"/usr/bin/node", {"node", "-e", "1", "app.js"}, "node"},
	{"/usr/bin/node", {"node", "-pe", "1"}, "node"},
	{"/usr/bin/node", {"node", "--eval=1", "app.js"}, "node"},
	{"/usr/bin/node", {"node"}, "node"},
	{"/usr/bin/php8.2", {"php", "-f", "x.php", "y"}, "php8.2-x.php"},
	{"/usr/bin/php8.2", {"php", "/srv/x.php"}, "php8.2-x.php"},
	{"/usr/bin/php8.2", {"php", "-d", "memory_limit=1G", "artisan", "serve"}, "php8.2-artisan"},
	{"/usr/bin/php8.2", {"php", "-dmemory_limit=1G", "-n", "artisan"}, "php8.2-artisan"},
	{"/usr/bin/php8.2", {"php", "-r", "echo 1;", "x.php"}, "php8.2"},
	{"/usr/bin/php8.2", {"php", "-S", "127.0.0.1:80", "-t", "public", "router.php"}, "php8.2-router.php"},
	{"/usr/bin/php8.2", {"php", "--file=x.php"}, "php8.2-x.php"},
	{"/usr/sbin/php-fpm8.2", {"php-fpm8.2", "-F", "-y", "/etc/fpm.conf"}, "php-fpm8.2"},
	{"/usr/lib/jvm/java-17/bin/java", {"java", "-cp", "x", "com.a.Main"}, "java-Main"},
	{"/usr/lib/jvm/java-17/bin/java", {"java", "-Xmx1g", "-Da=b", "-jar", "/opt/a.jar", "x"}, "java-a.jar"},
	{"/usr/lib/jvm/java-17/bin/java", {"java", "-p", "mods", "-m", "com.a/com.a.Main"}, "java-Main"},
	{"/usr/lib/jvm/java-17/bin/java", {"java", "--add-opens", "a/b=ALL-UNNAMED", "@opts", "Main"}, "java-Main"},
	{"/usr/lib/jvm/java-17/bin/java", {"java", "--class-path=x", "src/Main.java"}, "java-Main.java"},
	{"/bin/bash", {"bash", "-c", "curl x", "script.sh"}, "bash"},
	{"/bin/bash", {"bash", "script.sh"}, "bash-script.sh"},
	{"/bin/bash", {"-bash"}, "bash"},
	{"/bin/bash", {"bash", "-lc", "x"}, "bash"},
	{"/bin/bash", {"bash", "-eo", "pipefail", "/a/script.sh"}, "bash-script.sh"},
	{"/bin/bash", {"bash", "+o", "history", "-x", "script.sh"}, "bash-script.sh"},
	{"/bin/bash", {"bash", "--rcfile", "rc", "-i"}, "bash"},
	{"/bin/bash", {"bash", "--norc", "s.sh"}, "bash-s.sh"},
	{"/bin/bash", {"bash", "-s", "--", "arg"}, "bash"},
	{"/bin/dash", {"sh", "-e", "run me.sh"}, "dash-run_me.sh-ebd8bec5c0d3ea33"},
	{"/usr/bin/zsh", {"zsh", "-", "x.zsh"}, "zsh-x.zsh"},
	{"", {"/opt/tool", "x"}, "tool"},
	{NULL, {NULL}, "_-efd01f60ba992926"},
};

static void groups(void)
{
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		char *argv[WORDS + 1] = {NULL};
		char group[GROUP_MAX + 1], line[400] = "";
		int argc = 0;

		for (; argc < WORDS && rows[i].argv[argc]; argc++) {
			argv[argc] = (char *)(uintptr_t)rows[i].argv[argc];
			strcat(strcat(line, argc ? " " : ""), argv[argc]);
		}
		identity_group(group, rows[i].exe, argc, argv);
		tap_ok(strcmp(group, rows[i].group) == 0, "group of `%s` is %s%s%s", line, rows[i].group,
			strcmp(group, rows[i].group) ? ", not " : "", strcmp(group, rows[i].group) ? group : "");
	}
}

static void cleaning(void)
{
	char a[GROUP_MAX + 1], b[GROUP_MAX + 1], longer[300];

	identity_clean_group(a, "a b/c\xc3\xa4:\n");
	tap_ok(strncmp(a, "a_b_c____-", 10) == 0 && strlen(a) == 9 + 17,
		"E11: other bytes become '_', with a hash (%s)", a);
	identity_clean_group(a, "a/b");
	identity_clean_group(b, "a_b");
	tap_ok(strcmp(a, b) != 0 && strcmp(b, "a_b") == 0, "E11: a/b and a_b are two groups (%s, %s)", a, b);
	identity_clean_group(a, "");
	identity_clean_group(b, "_");
	tap_ok(a[0] == '_' && strcmp(a, b) != 0 && strcmp(b, "_") == 0, "E11: no name and _ are two groups (%s)", a);
	memset(longer, 'x', sizeof longer);
	longer[63] = ':';
	longer[64] = '\0';
	identity_clean_group(a, longer);
	tap_ok(strlen(a) == GROUP_MAX && a[47] == '-', "E11: a mangled name of 64 bytes keeps to 64 (%s)", a);
	memset(longer, 'x', sizeof longer);
	longer[64] = '\0';
	identity_clean_group(a, longer);
	tap_ok(strcmp(a, longer) == 0, "E11: 64 bytes are kept");
	longer[64] = 'x';
	longer[299] = '\0';
	identity_clean_group(a, longer);
	longer[298] = 'y';
	identity_clean_group(b, longer);
	tap_ok(strlen(a) == 64 && strlen(b) == 64 && strncmp(a, b, 48) == 0 && strcmp(a, b) != 0 && a[47] == '-',
		"E11: longer names are hashed and stay apart (%s)", a);
}

static const char *state_dir, *runtime_dir, *xdg_dir;

static const char *env(const char *name)
{
	if (strcmp(name, "RESIL_STATE_DIR") == 0)
		return state_dir;
	if (strcmp(name, "RESIL_RUNTIME_DIR") == 0)
		return runtime_dir;
	return strcmp(name, "XDG_RUNTIME_DIR") == 0 ? xdg_dir : NULL;
}

static void directories(void)
{
	char dir[64], path[256], made[] = "/tmp/resil-identity-XXXXXX";
	struct stat st;

	tap_ok(identity_state_dir(dir, sizeof dir, 1000, env) && strcmp(dir, "/dev/shm/resil-1000") == 0,
		"default state directory");
	tap_ok(identity_runtime_dir(dir, sizeof dir, 1000, env) && strcmp(dir, "/tmp/resil-1000") == 0,
		"runtime directory of a user");
	tap_ok(identity_runtime_dir(dir, sizeof dir, 0, env) && strcmp(dir, "/run/resil") == 0,
		"runtime directory of root");
	xdg_dir = "/run/user/7";
	tap_ok(identity_runtime_dir(dir, sizeof dir, 7, env) && strcmp(dir, "/run/user/7/resil") == 0,
		"XDG_RUNTIME_DIR");
	runtime_dir = "/r", state_dir = "/s";
	tap_ok(identity_runtime_dir(dir, sizeof dir, 7, env) && strcmp(dir, "/r") == 0, "RESIL_RUNTIME_DIR");
	tap_ok(identity_state_dir(dir, sizeof dir, 7, env) && strcmp(dir, "/s") == 0, "RESIL_STATE_DIR");
	tap_ok(!identity_state_dir(dir, 2, 7, env), "a directory that does not fit is refused");

	if (!mkdtemp(made))
		abort();
	snprintf(path, sizeof path, "%s/d", made);
	mode_t old = umask(0777);
	int err = identity_make_dir(path);
	umask(old);
	tap_ok(err == 0 && stat(path, &st) == 0 && (st.st_mode & 07777) == 0700, "E11: made 0700 whatever the umask");
	tap_ok(identity_make_dir(path) == 0, "an existing one of ours serves");
	chmod(path, 0750);
	tap_ok(identity_make_dir(path) < 0, "E11: rights for others are refused");
	chmod(path, 0700);
	char link_path[256];
	snprintf(link_path, sizeof link_path, "%s/l", made);
	if (symlink(path, link_path) != 0)
		abort();
	tap_ok(identity_make_dir(link_path) < 0, "E11: a symbolic link is refused");
	unlink(link_path);
	rmdir(path);
	rmdir(made);
}

static void files(void)
{
	char file[128], again[128], path[200], dir[120];

	tap_ok(identity_region_file(file, sizeof file, "app", 0) &&
			identity_region_file(again, sizeof again, "app", getpid()) && strcmp(file, again) == 0,
		"a region's file by pid 0 and by our pid: %s", file);
	tap_ok(strncmp(file, "app.", 4) == 0 && strlen(file) == 4 + 16 + 3 && atoi(file + 22) == REGION_LAYOUT,
		"group, namespaces, layout");
	tap_ok(identity_socket_path(path, sizeof path, "/run/resil", "app", 0) &&
			strcmp(path, "/run/resil/app.sock") == 0,
		"socket");
	tap_ok(identity_socket_path(path, sizeof path, "/run/resil", "app", 7) &&
			strcmp(path, "/run/resil/app.7.sock") == 0,
		"private socket");
	memset(dir, 'd', sizeof dir);
	dir[0] = '/';
	dir[80] = '\0';
	const char *group = "a-group-with-a-name-of-fifty-bytes-and-some-more-x";
	tap_ok(identity_socket_path(path, sizeof path, dir, group, 0) && strlen(path) <= 107 && !strstr(path, group) &&
			strncmp(path, dir, 80) == 0,
		"E11: over 107 bytes the group is hashed (%zu)", strlen(path));
	dir[80] = 'd';
	dir[110] = '\0';
	tap_ok(!identity_socket_path(path, sizeof path, dir, group, 0),
		"a directory too long for any socket is refused");
}

static void *outlive(void *unused)
{
	for (int i = 0; i < 1000; i++)
		pause();
	return unused;
}

static void start_times(void)
{
	char state = 0;

	tap_ok(identity_start_ticks(getpid(), &state) > 0 && state == 'R', "our own start time and state");
	pid_t pid = fork();
	if (pid == 0)
		_exit(0);
	siginfo_t info;
	waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT);
	tap_ok(identity_start_ticks(pid, &state) > 0 && state == 'Z', "a zombie is seen as one");
	waitpid(pid, NULL, 0);
	tap_ok(identity_start_ticks(pid, &state) == 0, "no start time of a process that is gone");

	pid = fork();
	if (pid == 0) {
		pthread_t thread;
		pthread_create(&thread, NULL, outlive, NULL);
		pthread_exit(NULL);
	}
	state = 0;
	bool was_leader_gone = false;
	char path[64], line[512];
	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	for (int i = 0; i < 2000 && !was_leader_gone; i++) {
		FILE *f = fopen(path, "r");
		was_leader_gone = f && fgets(line, sizeof line, f) && strstr(line, ") Z ");
		if (f)
			fclose(f);
		usleep(1000);
	}
	tap_ok(was_leader_gone && identity_start_ticks(pid, &state) > 0 && state == 'S',
		"main may pthread_exit: the process lives (E5)");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

int main(void)
{
	groups();
	cleaning();
	directories();
	files();
	start_times();
	return tap_done();
}
