#!/usr/bin/env bats
# From a bare Debian on (`make machine-check`; root, a mirror, minutes): to a service that is guarded and visible in `top` in five commands, from
# "connection refused" in its log to the cause in one, each as the README and the cookbook have it; and the package in such a machine.
load ../lib/common
load ../lib/machine
bats_require_minimum_version 1.5.0

# One machine for all but the package: it is bare of what builds until the first of them has made it.
setup_file() { machine_make "$BATS_FILE_TMPDIR/machine" make php-fpm nginx-light curl python3-minimal; }
setup() {
	TEST_TIMEOUT=150 # packages are fetched, and all is built by one processor
	common_setup
	shim_part
	machine=$BATS_FILE_TMPDIR/machine
}

# Each `walk` is one command as typed, with its time.
steps='
	steps=0
	walk() {
		local begun=${EPOCHREALTIME/[^0-9]/} code=0
		steps=$((steps + 1))
		bash -c "$1" >/tmp/said 2>&1 || code=$?
		echo "step $steps. $1: code $code, $(((${EPOCHREALTIME/[^0-9]/} - begun) / 1000)) ms"
		sed "s/^/| /" /tmp/said
		return $code
	}
	until_so() { for i in {1..600}; do "$@" >/dev/null 2>&1 && return; sleep 0.05; done; echo "in vain: $*"; return 1; }
'
told() { grep -E '^step ' <<<"$output" | sed 's/^/# /' >&3; }

@test "php-fpm behind nginx: five commands from a bare machine to top; one from its log to the cause" {
	machine_systemctl
	gone=$(free_port) web=$(free_port)
	cat >"$machine/var/www/html/index.php" <<-END
		<?php
		ini_set("log_errors", "1");
		ini_set("error_log", "/var/log/php-app.log");
		\$s = @stream_socket_client("tcp://127.0.0.1:$gone", \$errno, \$message, 5);
		if (!\$s) { error_log("rates: \$message"); http_response_code(500); }
		echo \$s ? "ok" : \$message, "\n";
	END
	touch "$machine/var/log/php-app.log"
	chmod 666 "$machine/var/log/php-app.log"
	rm "$machine/etc/nginx/sites-enabled/default" # a link that is absolute: into this system
	cat >"$machine/etc/nginx/conf.d/site.conf" <<-END
		server {
			listen 127.0.0.1:$web;
			root /var/www/html;
			location / { include fastcgi_params; fastcgi_param SCRIPT_FILENAME /var/www/html/index.php; fastcgi_pass unix:/run/php/php-fpm.sock; }
		}
	END
	run machine_runs <<-END
		$steps
		unit=\$(basename /lib/systemd/system/php*-fpm.service .service)
		sed -i 's|^listen = .*|listen = /run/php/php-fpm.sock|' /etc/php/*/fpm/pool.d/www.conf
		grep -q '^;clear_env = no' /etc/php/*/fpm/pool.d/www.conf && echo "clear_env: as it is by default"
		mkdir /run/php
		nginx
		systemctl restart \$unit
		until_so test -S /run/php/php-fpm.sock
		curl -sS http://127.0.0.1:$web/ | sed 's/^/before: /'
		walk "make install"
		walk "install -D -m 644 conf/systemd/resil.conf /etc/systemd/system/\$unit.service.d/resil.conf"
		walk "systemctl daemon-reload && systemctl restart \$unit"
		until_so test -S /run/php/php-fpm.sock
		walk "for i in 1 2 3 4 5 6 7; do curl -sS http://127.0.0.1:$web/; done"
		walk "resil top -n 1 -d 100ms --all-users"
		tail -n 1 /var/log/php-app.log
		steps=0
		walk "resil why --all-users"
		resil status --all-users --json | grep -o '"group":"[^"]*","user":"[^"]*"'
		resil doctor "\$(resil members --all-users | awk 'NR == 1 { print \$3 }')"
	END
	assert_success
	told
	assert_line "clear_env: as it is by default"
	assert_line "before: Connection refused"
	assert_line --regexp "^step 5\. resil top .*: code 0,"
	refute_line --regexp "^step 6"
	assert_line --regexp "^\| .*www-data	php8?.*-fpm	127.0.0.1:$gone	open	"
	assert_line --regexp "rates: Connection refused$"
	assert_line --regexp "^step 1\. resil why --all-users: code 0,"
	assert_line --regexp "^\| 127.0.0.1:$gone in group php.*-fpm is open: resil rejects its calls at once with ECONNREFUSED"
	assert_line --regexp "^\| Why: 5 consecutive failures \(last: refused\), the last one met by php-fpm"
	assert_line --regexp "^\| Stop it, to try again now: resil reset 127.0.0.1:$gone -g php.*-fpm --all-users$"
	assert_line --regexp '^"group":"php.*-fpm","user":"www-data"$'
	assert_line --regexp '^ok	group	php.*-fpm$'
}

@test "a Python service: five commands from a bare machine to top; the cause in one" {
	gone=$(free_port)
	cat >"$machine/root/service.py" <<-END
		import socket, time
		while True:
		    try: socket.create_connection(("127.0.0.1", $gone)).close()
		    except OSError as e: print("rates:", e.strerror, flush=True)
		    time.sleep(0.05)
	END
	run machine_runs <<-END
		$steps
		walk "make install"
		walk "resil doctor python3"
		walk "resil run -- python3 /root/service.py >/var/log/service.log 2>&1 & sleep 0"
		is_open() { resil status | grep -q '	open	'; }
		until_so is_open
		walk "resil status"
		walk "resil top -n 1 -d 100ms"
		tail -n 1 /var/log/service.log
		steps=0
		walk "resil why"
	END
	assert_success
	told
	assert_line --regexp "^step 5\. resil top .*: code 0,"
	assert_line --regexp "^\| .*python3[0-9.]*-service.py	127.0.0.1:$gone	open	"
	assert_line "rates: Connection refused"
	assert_line --regexp "^\| 127.0.0.1:$gone in group python3[0-9.]*-service.py is open: resil rejects"
}

@test "the container recipe: the image's lines make it, the init container's fills the volume, and a program in a bare image is guarded" {
	# No docker daemon here: FROM is a bare Debian, RUN and CMD are run in it as they stand, COPY and the volumes are copied and bound.
	dockerfile=$root/conf/container/Dockerfile
	assert_equal "$(sed -nE 's/^(FROM|COPY) //p' "$dockerfile" | xargs)" "debian:12 AS build . /src debian:12-slim AS init --from=build /resil /resil"
	cp -a "$machine/project" "$machine/src"
	sed -n '/^RUN /,/[^\\]$/p' "$dockerfile" | sed '1s/^RUN //' >"$dir/lines"
	run machine_runs <"$dir/lines"
	assert_success
	sed -n 's/^CMD //p' "$dockerfile" | jq -r '"mkdir -p /shared; " + (. | map("\u0027" + . + "\u0027") | join(" "))' >"$dir/lines"
	run machine_runs <"$dir/lines"
	assert_success
	# The program's image: nothing but Debian, and bash for a program.
	gone=$(free_port) shared=$machine/shared
	machine_make "$dir/app"
	mkdir "$machine/resil"
	cp "$shared"/* "$machine/resil/"
	{
		sed -nE 's/.*\{name: ([A-Z_]+), value: ([^}]+)\}/export \1=\2/p' "$root/conf/container/pod.yaml"
		cat <<-END
			unset LD_PRELOAD && mkdir /run-resil
			for i in 1 2 3 4 5 6 7; do LD_PRELOAD=/resil/libresil.so bash -c 'exec 3<>/dev/tcp/127.0.0.1/$gone' || true; done
			/resil/resil why
			sed -n 's/^#   kubectl exec POD -c app -- //p' /project/conf/container/pod.yaml | bash
		END
	} >"$dir/lines"
	run machine_runs <"$dir/lines"
	assert_success
	assert_equal "$(grep -c "^127.0.0.1:$gone in group app is open: resil rejects its calls at once with ECONNREFUSED" <<<"$output")" 2
	assert_line --regexp "resil: 127.0.0.1:$gone closed -> open: 5 consecutive failures"
}

@test "the package in a bare machine: it installs, runs, and is gone without a trace; its manuals and completions are found" {
	deb=$(echo "$build"/deb/resil_*_amd64.deb)
	[ -e "$deb" ] || fail "$deb is not there: run make deb first"
	machine_make "$dir/machine" man-db bash-completion zsh fish
	gone=$(free_port)
	cp "$deb" "$bin/dial" "$machine/tmp/"
	run machine_runs <<-END
		before=\$(find / -xdev -path /tmp -prune -o -path /var -prune -o -type f -print | sort | md5sum)
		# Images of Debian leave out documents unless they are asked for; this is no image.
		DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install /tmp/resil_*.deb >/tmp/log 2>&1 || { cat /tmp/log; exit 1; }
		dpkg -s resil | grep ^Status
		dpkg --verify resil && echo "verified"
		for i in 1 2 3 4 5 6 7; do resil run -- /tmp/dial 127.0.0.1 $gone || true; done >/dev/null
		resil status | cut -f1,2
		for page in 1/resil 5/resil.conf 7/libresil; do man -w \${page%/*} \${page#*/}; done
		man 1 resil | grep -c . | sed 's/^[0-9][0-9][0-9]*$/it is long/'
		bash -ic '. /usr/share/bash-completion/bash_completion; _completion_loader resil; complete -p resil' 2>/dev/null
		zsh -fc 'autoload -U compinit; compinit -D -u; echo zsh: \$_comps[resil]'
		fish -c "complete -C 'resil stat'" | cut -f1 | sed 's/^/fish: /'
		apt-get -q -y purge resil >/tmp/log 2>&1
		apt-get -q -y autoremove --purge >/tmp/log 2>&1
		after=\$(find / -xdev -path /tmp -prune -o -path /var -prune -o -type f -print | sort | md5sum)
		[ "\$before" = "\$after" ] && echo "all files as before"
		[ ! -e /etc/ld.so.preload ] && echo "no ld.so.preload"
	END
	assert_success
	assert_line "Status: install ok installed"
	assert_line verified
	assert_line "127.0.0.1:$gone	open"
	for page in man1/resil.1 man5/resil.conf.5 man7/libresil.7; do assert_line "/usr/share/man/$page.gz"; done
	assert_line "it is long"
	assert_line --regexp '^complete .* resil$'
	assert_line "zsh: _resil"
	assert_line "fish: status"
	assert_line "all files as before"
	assert_line "no ld.so.preload"
}
