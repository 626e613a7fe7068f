#!/usr/bin/env bats
# doc/cookbook.md: every command in a block of it is run, and what it says of servers is asked of them.
load lib/common
load lib/documents
bats_require_minimum_version 1.5.0

setup() {
	common_setup
	shim_part
}

@test "every command of the cookbook does what it should" { patience=60 runs "$root/doc/cookbook.md" 16; }

@test "chaos in a test suite: a fault of a run counts for that run, its journal names the calls and repeats them, the report is JUnit's" {
	peer server 127.0.0.1 answer
	house
	local line
	line=$(commands "$root/doc/cookbook.md" | grep -- --journal.refused.log | here)
	cd "$dir"
	for i in 1 2; do
		run bare env PATH="$dir/bin:$PATH" bash -c "$line"
		assert_success
		assert_equal "$(grep -c 'Failed to connect' <<<"$output")" 2
		assert_equal "$(grep -c '^hit refuse ' refused.log)" 2
		rm -f refused.log.first
		mv refused.log refused.log.first
	done
	# A run by chance is repeated by its journal, whatever the seed.
	RESIL_SEED=2 run resil run -g suite -s breaker=off --fault "refuse 127.0.0.1:$server_port percent=50%" --journal once.log -- curl -s -w '%{errormsg} ' "http://127.0.0.1:$server_port/?[1-20]"
	before=$output
	[[ $before == *"Failed to connect"* && $before == *ok* ]]
	RESIL_SEED=9 run resil run -g suite -s breaker=off --fault "refuse 127.0.0.1:$server_port percent=50%" --replay once.log -- curl -s -w '%{errormsg} ' "http://127.0.0.1:$server_port/?[1-20]"
	assert_equal "$(normalised <<<"$output")" "$(normalised <<<"$before")"
	# The promises of the cookbook's line, as CI takes them; and of a program that lies to it.
	line=$(commands "$root/doc/cookbook.md" | grep '^resil verify ' | here)
	run env TEST_TIMEOUT=110 PATH="$dir/bin:$PATH" bash -c "$line"
	assert_success
	report() { xmllint --noout --schema "$root/tests/lib/junit.xsd" "$1" && xmllint --xpath 'concat(/testsuite/@tests, " ", /testsuite/@failures)' "$1"; }
	run report verify.xml
	assert_line "12 0"
	run env TEST_TIMEOUT=110 PATH="$dir/bin:$PATH" bash -c "$(sed 's|-- .*|-- true|; s|verify.xml|lies.xml|' <<<"$line")"
	assert_failure
	[ ! -s lies.xml ] || { run report lies.xml && refute_line "12 0"; }
}

@test "php-fpm's workers are guarded, share one circuit, and clear_env does not matter" {
	peer backend 127.0.0.1 refuse
	cat >"$dir/fpm.conf" <<-END
		[global]
		error_log = $dir/fpm.log
		daemonize = no
		[www]
		listen = $dir/fpm.sock
		pm = static
		pm.max_children = 3
		pm.max_requests = 2
		clear_env = yes
	END
	[ "$(id -u)" != 0 ] || printf 'user = root\ngroup = root\nlisten.owner = root\n' >>"$dir/fpm.conf"
	cat >"$dir/ask.php" <<-'END'
		<?php
		$s = @stream_socket_client("tcp://127.0.0.1:$_GET[port]", $errno, $message, 5);
		echo getenv("LD_PRELOAD") === false ? "cleared" : "kept", " $message\n";
	END
	fpm=$(echo /usr/sbin/php-fpm[0-9]*)
	RESIL_GROUP=pool RESIL_SET='recovery_timeout=5m;recovery_max=5m' start fpm under "$fpm" -n -F -R -y "$dir/fpm.conf"
	wait_until test -S "$dir/fpm.sock"
	ask() { bare env SCRIPT_FILENAME="$dir/ask.php" REQUEST_METHOD=GET QUERY_STRING="port=$backend_port" cgi-fcgi -bind -connect "$dir/fpm.sock"; }
	for i in 1 2 3 4 5 6 7 8; do
		run ask
		assert_line --partial "cleared Connection refused"
	done
	# Nine workers or so, two requests each: the sixth request knew of the five before.
	assert_equal "$(destination "127.0.0.1:$backend_port" calls.failure -g pool) $(destination "127.0.0.1:$backend_port" calls.rejected -g pool)" "5 3"
	# While it is forced closed, all go out again.
	resil force "127.0.0.1:$backend_port" closed --for 1m -g pool 2>/dev/null
	ask >/dev/null
	assert_equal "$(destination "127.0.0.1:$backend_port" calls.failure -g pool)" 6
}

@test "a rejected connect is to nginx a refused one: the next server answers, and all workers know" {
	peer gone 127.0.0.1 refuse
	peer well 127.0.0.1 answer
	mkdir "$dir/nginx"
	cat >"$dir/nginx.conf" <<-END
		daemon off;
		worker_processes 2;
		pid $dir/nginx/pid;
		error_log $dir/nginx/error;
		events { worker_connections 64; }
		http {
			access_log off;
			client_body_temp_path $dir/nginx; proxy_temp_path $dir/nginx; fastcgi_temp_path $dir/nginx;
			uwsgi_temp_path $dir/nginx; scgi_temp_path $dir/nginx;
			upstream both { server 127.0.0.1:$gone_port max_fails=0; server 127.0.0.1:$well_port max_fails=0; }
			server { listen unix:$dir/nginx/sock; location / { proxy_pass http://both; proxy_next_upstream error; } }
		}
	END
	[ "$(id -u)" != 0 ] || echo 'user root;' >>"$dir/nginx.conf"
	RESIL_GROUP=edge RESIL_SET='recovery_timeout=5m;recovery_max=5m' start nginx under nginx -c "$dir/nginx.conf" -e "$dir/nginx/error"
	wait_until test -S "$dir/nginx/sock"
	ask() { curl -sS -o "$dir/body" -w '%{http_code}\n' --unix-socket "$dir/nginx/sock" http://nginx/; }
	for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do
		run ask
		assert_output 200
	done
	assert_equal "$(destination "127.0.0.1:$gone_port" state -g edge) $(destination "127.0.0.1:$gone_port" calls.failure -g edge)" "open 5"
	[ "$(destination "127.0.0.1:$gone_port" calls.rejected -g edge)" -ge 1 ]
	assert_equal "$(destination "127.0.0.1:$well_port" state -g edge)" closed
}
