#!/usr/bin/env bats
# The houses that the shim is a guest in: servers with event loops, other preloads, plug-ins, other libcs, filters, and programs that end oddly.
load lib/common

hosted() { # CASE MODE-OF-THE-SERVER: bare, then under the shim
	peer host 127.0.0.1 "$2"
	run bare "$bin/hosted" "$1" "$host_port"
	assert_success
	assert_line ok
	shim_part
	run under "$bin/hosted" "$1" "$host_port"
	assert_success
	assert_line ok
}

@test "when the app's threads have left, ours do not keep the process (E5)" {
	export RESIL_SET='connect_timeout=20s'
	hosted alone full
}

@test "under a filter that kills on every system call not its own the program goes on, and the circuit opens (E14)" {
	hosted seccomp refuse
	assert_equal "$(destination "127.0.0.1:$host_port" state)" open
}

@test "the same by syscall(SYS_seccomp, ...), as libseccomp does (E14 E12)" { hosted seccomp_syscall refuse; }

@test "a filter that was there before the first connect: no system call of ours, at exit neither (E14)" { hosted seccomp_first refuse; }

@test "threads that fork at the same time, limits running: nothing hangs, every limit comes (E4 E5)" {
	peer host 127.0.0.1 full
	shim_part
	export RESIL_SET='connect_timeout=50ms;breaker=observe'
	run under "$bin/hosted" fork_race "$host_port"
	assert_success
	assert_line ok
}

@test "a blocking connect leaves SO_SNDTIMEO, blocking and errno as they were, for ever in large numbers too (E1)" { hosted for_ever hang; }

@test "setuid() with our threads there returns (E13)" { hosted setuid refuse; }

@test "connect in a signal handler that interrupts connect (E2)" { hosted handler refuse; }

@test "a signal ends a blocking connect with EINTR, or does not with SA_RESTART: as without us (E1)" {
	export RESIL_SET='connect_timeout=20s'
	hosted eintr full
	export RESIL_SET='connect_timeout=400ms'
	run under "$bin/hosted" restart "$host_port"
	assert_success
	assert_line ok
}

@test "an unused connection shut down after a second is no hang-up: the circuit stays closed (A5)" {
	export RESIL_SET='failure_threshold=1'
	hosted unused answer
	assert_equal "$(destination "127.0.0.1:$host_port" state)" closed
	assert_equal "$(destination "127.0.0.1:$host_port" calls.neutral)" 2
}

@test "a limit holds when main has left and one thread goes on (C5 E5)" {
	peer host 127.0.0.1 full
	shim_part
	export RESIL_SET='connect_timeout=1400ms'
	run under "$bin/hosted" main_left "$host_port"
	assert_success
	assert_line ok
}

# --- an event-driven proxy (CN3) ---

nginx_conf() { # NAME PORT ACTION
	mkdir -p "$dir/$1"
	cat >"$dir/$1.conf" <<-END
		daemon off; worker_processes 2; pid $dir/$1/pid; error_log $dir/$1/error.log;
		user $(id -un);
		events { worker_connections 256; }
		http {
		  access_log off; client_body_temp_path $dir/$1/b; proxy_temp_path $dir/$1/p; fastcgi_temp_path $dir/$1/f; uwsgi_temp_path $dir/$1/u; scgi_temp_path $dir/$1/s;
		  server { listen 127.0.0.1:$2; location / { $3 } }
		}
	END
}
http_code() { curl -s -o /dev/null -w '%{http_code}' -m 5 "http://127.0.0.1:$1/"; }
answers() { [ "$(http_code "$1")" = "$2" ]; }

@test "nginx as a proxy: thousands of requests, the upstream killed and started again (CN3 B19)" {
	local up=$(free_port) proxy=$(free_port) codes
	nginx_conf upstream "$up" 'return 200 "hello\n";'
	nginx_conf proxy "$proxy" "proxy_pass http://127.0.0.1:$up; proxy_connect_timeout 2s;"
	shim_part
	start upstream bare nginx -c "$dir/upstream.conf"
	start proxy under nginx -c "$dir/proxy.conf"
	wait_until answers "$proxy" 200
	for round in 1 2 3; do
		# A thousand by one curl, each a connect of nginx's to the upstream.
		codes=$(curl -s -o /dev/null -w '%{http_code}\n' "http://127.0.0.1:$proxy/?[1-1000]" | sort | uniq -c | tr -s ' ')
		assert_equal "$codes" " 1000 200"
		kill "$upstream_pid"
		wait "$upstream_pid" || true
		wait_until answers "$proxy" 502
		codes=$(curl -s -o /dev/null -w '%{http_code}\n' "http://127.0.0.1:$proxy/?[1-200]" | sort | uniq -c | tr -s ' ')
		assert_equal "$codes" " 200 502"
		wait_until state_is "127.0.0.1:$up" open
		start upstream bare nginx -c "$dir/upstream.conf"
		wait_until answers "$proxy" 200
	done
	# Both workers shared the circuit; no worker died.
	refute grep -q 'exited on signal' "$dir/proxy/error.log"
	assert_equal "$(destination "127.0.0.1:$up" calls.in_flight)" 0
}

# --- what is loaded beside us ---

@test "a preload behind ours still sees every connect (E17)" {
	peer server 127.0.0.1 answer
	cat >"$dir/other.c" <<-'END'
		#include <dlfcn.h>
		#include <stdio.h>
		#include <sys/socket.h>
		int connect(int fd, const struct sockaddr *to, socklen_t len)
		{
			int (*next)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "connect");
			fputs("the other saw it\n", stderr);
			return next(fd, to, len);
		}
	END
	gcc -D_GNU_SOURCE -shared -fPIC -o "$dir/other.so" "$dir/other.c"
	shim_part
	for order in "$shim $dir/other.so" "$dir/other.so $shim"; do
		run timeout "$TEST_TIMEOUT" env LD_PRELOAD="$order" "$bin/dial" -x 127.0.0.1 "$server_port"
		assert_success
		assert_line "the other saw it"
	done
	assert_equal "$(destination "127.0.0.1:$server_port" calls.success)" 2
}

@test "a plug-in loaded with RTLD_DEEPBIND is seen: php-curl (E18)" {
	php -m | grep -qx curl || skip "php has no curl here"
	peer dead 127.0.0.1 refuse
	local script="\$c = curl_init('http://127.0.0.1:$dead_port/'); curl_exec(\$c); echo curl_errno(\$c), PHP_EOL;"
	run bare php -r "$script"
	assert_line 7
	shim_part
	export RESIL_SET='recovery_timeout=5m;recovery_max=5m' # longer than six starts
	for i in 1 2 3 4 5 6; do
		run under php -r "$script"
		assert_line 7
	done
	assert_equal "$(destination "127.0.0.1:$dead_port" state)" open
	assert_equal "$(destination "127.0.0.1:$dead_port" calls.rejected)" 1
}

@test "a C plug-in loaded with RTLD_DEEPBIND is guarded; one in a namespace of its own (dlmopen) does as without us (E18)" {
	peer dead 127.0.0.1 refuse
	gcc -D_GNU_SOURCE -shared -fPIC -o "$dir/plugin.so" -x c - <<-'END'
		#include <arpa/inet.h>
		#include <errno.h>
		#include <sys/socket.h>
		#include <unistd.h>
		int dial(int port, int *fd)
		{
			struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
			*fd = socket(AF_INET, SOCK_STREAM, 0);
			return connect(*fd, (void *)&to, sizeof to) ? errno : 0;
		}
	END
	gcc -D_GNU_SOURCE -o "$dir/host" -x c - -ldl <<-'END'
		#include <dlfcn.h>
		#include <stdio.h>
		#include <stdlib.h>
		#include <string.h>
		#include <unistd.h>
		int main(int argc, char **argv)
		{
			int own = !strcmp(argv[1], "dlmopen"), fd;
			void *plugin = own ? dlmopen(LM_ID_NEWLM, argv[2], RTLD_NOW) : dlopen(argv[2], RTLD_NOW | RTLD_DEEPBIND);
			if (!plugin) return puts(dlerror());
			int (*dial)(int, int *) = dlsym(plugin, "dial");
			for (int i = 0; i < 7; i++) {
				printf("%d ", dial(atoi(argv[3]), &fd));
				/* What the plug-in opened the host closes: the number is free for its next one. */
				printf("%d %d\n", fd, close(fd));
			}
			return dlclose(plugin);
		}
	END
	export RESIL_SET='recovery_timeout=5m;recovery_max=5m'
	for way in dlopen dlmopen; do
		run bare "$dir/host" "$way" "$dir/plugin.so" "$dead_port"
		assert_success
		assert_equal "$(grep -c '^111 3 0$' <<<"$output")" 7
		bare_output=$output
		[ -n "$TEST_BARE" ] && continue
		run under "$dir/host" "$way" "$dir/plugin.so" "$dead_port"
		assert_success
		assert_output "$bare_output"
		[ "$way" = dlmopen ] || assert_equal "$(destination "127.0.0.1:$dead_port" calls.rejected)" 2
	done
	shim_part
	assert_equal "$(destination "127.0.0.1:$dead_port" calls.rejected)" 2
}

@test "a program on musl starts under our preload, and we do nothing in it (E16)" {
	command -v musl-gcc >/dev/null || skip "no musl here"
	peer dead 127.0.0.1 refuse
	musl-gcc -O1 -o "$dir/musl" -x c - <<-'END'
		#include <arpa/inet.h>
		#include <errno.h>
		#include <stdio.h>
		#include <stdlib.h>
		#include <string.h>
		#include <sys/socket.h>
		#include <sys/wait.h>
		#include <unistd.h>
		int main(int argc, char **argv)
		{
			struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
			for (int i = 0; i < 7; i++) {
				int fd = socket(AF_INET, SOCK_STREAM, 0);
				puts(connect(fd, (void *)&to, sizeof to) ? strerror(errno) : "connected");
				close(fd);
			}
			pid_t p = vfork();
			if (!p) { execl("/bin/true", "true", (char *)0); _exit(1); }
			int status;
			waitpid(p, &status, 0);
			printf("%d\n", status);
			return 0;
		}
	END
	run bare "$dir/musl" "$dead_port"
	assert_success
	bare_output=$output
	shim_part
	# From a glibc parent, as it happens: env.
	run under "$dir/musl" "$dead_port"
	assert_success
	assert_output "$bare_output"
	run resil status --exit-code
	assert_failure 3
}

@test "a filter set by syscall(SYS_prctl, ...): no system call of ours under it (E14 E12)" {
	peer dead 127.0.0.1 refuse
	run bare "$bin/hosted" seccomp_syscall_prctl "$dead_port"
	assert_output ok
	shim_part
	run under "$bin/hosted" seccomp_syscall_prctl "$dead_port"
	assert_success
	assert_output ok
}
