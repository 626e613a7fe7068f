#!/usr/bin/env bats
# README, cookbook and manuals name only what there is: every command in a block of README.md and doc/cookbook.md is run here, in a house of its own.
load lib/common
bats_require_minimum_version 1.5.0

setup() {
	common_setup
	shim_part
}

# The commands of a document's blocks, one a line: those in sh blocks, and in plain ones what begins like a command.
commands() {
	python3 - "$1" <<-'END'
		import re, sys
		inside, kind = False, ""
		for line in open(sys.argv[1]):
		    if line.startswith("```"):
		        inside, kind = not inside, line[3:].strip()
		        continue
		    if not inside or kind not in ("", "sh"):
		        continue
		    line = re.sub(r"\s+# .*", "", line.rstrip().removeprefix("$ "))
		    line = re.sub(r"^(\*|\*/\d+)( \*){4} ", "", line)
		    if kind == "sh" or re.match(r"(resil|make|curl|LD_PRELOAD=\S+|install|apt-get) ", line) and not re.match(r"curl: ", line):
		        if line.strip():
		            print(line)
	END
}

# In the house: a server that answers as api.internal, programs named in the documents, and groups that have used it.
house() {
	peer server 127.0.0.1 answer
	mkdir -p "$dir/bin" "$dir/etc" "$dir/collector"
	ln -s "$build/resil" "$dir/bin/resil"
	printf '#!/bin/sh\nexec curl -sS http://127.0.0.1:%s/\n' "$server_port" >"$dir/bin/yourapp"
	chmod +x "$dir/bin/yourapp"
	git init -q --bare "$dir/x.git"
	git -C "$dir/x.git" update-server-info
	start files bare python3 -u -m http.server -d "$dir" -b 127.0.0.1 0
	wait_until file_has 'port [0-9]+' "$dir/files.out"
	files_port=$(sed -nE 's/.*port ([0-9]+).*/\1/p' "$dir/files.out")
	local group
	for group in trial nightly suite; do RESIL_GROUP=$group under curl -sS "http://127.0.0.1:$server_port/" >/dev/null; done
	RESIL_GROUP=GROUP RESIL_CONF=$dir/control.conf start one under "$bin/dial" -n 1000000 -i 50 127.0.0.1 "$server_port"
	wait_until test -S "$RESIL_RUNTIME_DIR/GROUP.sock"
	one_shown=$one_pid
}
# A command as it is said, for this house.
here() {
	sed -e "s|http://api.internal/x.git|http://127.0.0.1:$files_port/x.git|; s|http://api.internal/|http://127.0.0.1:$server_port/|; s|api.internal:80|127.0.0.1:$server_port|g; s|payments.internal:443|127.0.0.1:$server_port|g" \
		-e "s|\$XDG_RUNTIME_DIR/resil|$RESIL_RUNTIME_DIR|; s|/usr/local/lib/libresil.so|$shim|; s| /etc/| $dir/etc/|; s| conf/systemd| $root/conf/systemd|" \
		-e "s|/usr/local/bin/report.sh|yourapp|; s|/var/lib/prometheus/node-exporter|$dir/collector|; s|127.0.0.1:9469|127.0.0.1:0|; s|-p 1\$|-p $one_shown|"
}

runs() { # DOCUMENT
	printf '[resil]\ncontrol = on\n' >"$dir/control.conf"
	house
	cd "$dir"
	local line each n=0
	while IFS= read -r line; do
		n=$((n + 1))
		case $line in
		make\ *) # long ones, with steps of their own in .ci/run: the target is there
			run bare make -n -C "$root" $(cut -d' ' -f2 <<<"$line")
			assert_success
			continue
			;;
		apt-get\ * | journalctl\ *) continue ;; # the system's own
		esac
		while IFS= read -r each; do
			each=$(here <<<"$each")
			run env PATH="$dir/bin:$PATH" timeout -k 2 "${patience:-5}" bash -c "$each" 3>&-
			case $each in
			resil\ top | resil\ events\ -f | resil\ export\ --listen* | resil\ -v\ *) [ "$status" = 124 ] || fail "it ended ($status): $each: $output" ;;
			*) [ "$status" = 0 ] || fail "code $status: $each: $output" ;;
			esac
		done < <(sed 's| / resil|\nresil|g' <<<"$line")
	done < <(commands "$1")
	echo "# $n commands" >&3
	[ "$n" -ge "$2" ] || fail "only $n commands found"
}

@test "every command of README.md does what it should" { patience=2 runs "$root/README.md" 15; }
@test "every command of the cookbook does what it should" { patience=4 runs "$root/doc/cookbook.md" 15; }

@test "verbs, options and files that the documents name are there" {
	python3 - "$root" "$build/resil" <<-'END'
		import os, re, subprocess, sys
		root, resil = sys.argv[1:]
		help_of = {}
		for line in subprocess.run([resil, "complete", "--", ""], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines():
		    verb = line.split("\t")[0]
		    help_of[verb] = subprocess.run([resil, "help", verb], stdout=subprocess.PIPE, text=True, check=True).stdout
		found = 0
		for name in ("README.md", "doc/cookbook.md", "SECURITY.md", "CHANGELOG.md", "conf/container/pod.yaml", "conf/systemd/resil.conf", "conf/prometheus/resil-alerts.yml"):
		    text = open(root + "/" + name).read()
		    for verb, rest in re.findall(r"(?<![-\w/.])resil ([a-z]+)\b([^\n\x60#|]*)", "\n".join(re.findall(r"\x60(resil [^\x60]+)\x60", text)) + "\n" + text if name.endswith(".md") else text):
		        if not name.endswith(".md") or "\x60resil " + verb in text:
		            if verb not in help_of:
		                assert not name.endswith(".md"), (name, verb)
		                continue
		            found += 1
		            for option in re.findall(r" (--[a-z-]+)", rest.split(" -- ")[0]):
		                assert option in help_of[verb], (name, verb, option)
		    if name.endswith(".md"):
		        for path in re.findall(r"\x60((?:conf|doc|tests|scripts|src)/[\w./*-]+)\x60", text):
		            import glob
		            assert glob.glob(root + "/" + path), (name, path)
		assert found > 20, found
		# The manual resil(1) has a section for each verb.
		manual = open(root + "/doc/resil.1").read()
		sections = " ".join(re.findall(r"^\.SS (.*)", manual, re.M))
		for verb in help_of:
		    assert re.search(r"\b%s\b" % verb, sections), verb
	END
}

@test "the manuals are set without a complaint" {
	for page in resil.1 resil.conf.5 libresil.7; do
		run bare man --warnings -E UTF-8 -l "$root/doc/$page"
		assert_success
		refute_output --partial "warning:"
	done
}

@test "the systemd drop-in: its environment guards a unit's program, with the unit's name as the group" {
	peer server 127.0.0.1 answer
	mkdir "$dir/t"
	mapfile -t env < <(sed -n 's/^Environment=//p' "$root/conf/systemd/resil.conf" | sed "s|/usr/local/lib/libresil.so|$shim|; s|%N|billing|g; s|%t|$dir/t|g")
	[ "${#env[@]}" = 4 ]
	bare env "${env[@]}" RESIL_SET= curl -sS "http://127.0.0.1:$server_port/" >/dev/null
	assert_equal "$(destination "127.0.0.1:$server_port" state -g billing)" closed
	[ -z "$(grep -vE '^(#.*|\[Service\]|[A-Z][A-Za-z]+=.+|)$' "$root/conf/systemd/resil.conf")" ]
}

@test "the container recipe: both files in one folder are all there is, and find each other" {
	peer server 127.0.0.1 answer
	mkdir "$dir/shared"
	cp "$build/libresil.so" "$build/resil" "$dir/shared/"
	run bare "$dir/shared/resil" run -- sh -c 'echo "$LD_PRELOAD"'
	assert_output "$dir/shared/libresil.so"
	# Nothing but glibc is asked for.
	for file in libresil.so resil; do
		run bash -c "readelf -d '$dir/shared/$file' | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | grep -vE '^(libc|ld-linux-x86-64|libpthread|libdl)\.so\.[0-9]+$'"
		assert_output ""
	done
	# The environment that pod.yaml gives.
	mapfile -t env < <(sed -nE 's/.*\{name: ([A-Z_]+), value: ([^}]+)\}/\1=\2/p' "$root/conf/container/pod.yaml" | sed "s|/resil/libresil.so|$dir/shared/libresil.so|; s|/run-resil|$dir/shared|")
	[ "${#env[@]}" = 4 ]
	bare env "${env[@]}" curl -sS "http://127.0.0.1:$server_port/" >/dev/null
	assert_equal "$(destination "127.0.0.1:$server_port" state -g app)" closed
}

@test "cookbook: php-fpm's workers are guarded, share one circuit, and clear_env does not matter" {
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

@test "cookbook: a rejected connect is to nginx a refused one: the next server answers, and all workers know" {
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
