#!/usr/bin/env bats
# What SECURITY.md says that another user, a member gone bad and an untrusted peer cannot do.
load lib/common
load lib/cache
bats_require_minimum_version 1.5.0

setup() {
	common_setup
	shim_part
	peer server 127.0.0.1 refuse
	name=127.0.0.1:$server_port
}
someone=(setpriv --reuid 65534 --regid 65534 --clear-groups)
open_way() { chmod 755 "$dir" "$(dirname "$dir")" "$(dirname "$(dirname "$dir")")"; }
calls() { # NUMBER
	local i
	for ((i = 0; i < $1; i++)); do under "$bin/dial" 127.0.0.1 "$server_port" || true; done
}

@test "SECURITY.md: each test that it names is there" {
	while read -r title; do
		grep -rqF --include='*.bats' --include='*.c' -e "$title" "$root/tests" || fail "no test is called: $title"
	done < <(grep '^| ' "$root/SECURITY.md" | grep -oE '"[^"]+"' | tr -d '"')
	[ "$(grep '^| ' "$root/SECURITY.md" | grep -cE '"[^"]+"')" -ge 10 ]
}

@test "another user can neither read nor set anything (threat)" {
	need_root "to be someone else"
	calls 6 >/dev/null
	open_way
	assert_equal "$(stat -c %a "$RESIL_STATE_DIR")" 700
	region=$(find "$RESIL_STATE_DIR" -type f)
	assert_equal "$(stat -c %a "$region")" 600
	run "${someone[@]}" cat "$region"
	assert_failure
	run bare "${someone[@]}" "$build/resil" status
	assert_failure
	refute_output --partial "$name"
	run bare "${someone[@]}" "$build/resil" force "$name" closed --forever
	assert_failure 4
	# Not even where the directory's mode was loosened: the file has its own.
	chmod 711 "$RESIL_STATE_DIR"
	run bare "${someone[@]}" "$build/resil" force "$name" closed --forever -g dial
	assert_failure
	assert_equal "$(destination "$name" state)" open
	run bare "${someone[@]}" "$build/resil" fault add refuse "$name" --forever -g dial
	assert_failure
	run resil fault ls -g dial
	refute_output --partial "$name"
	run -4 bare "${someone[@]}" "$build/resil" status --all-users
	run -4 bare "${someone[@]}" "$build/resil" off --host
}

@test "directories that another user made first are refused (threat)" {
	need_root "to be someone else"
	open_way
	mkdir "$RESIL_STATE_DIR" "$RESIL_RUNTIME_DIR"
	chown 65534 "$RESIL_STATE_DIR" "$RESIL_RUNTIME_DIR"
	chmod 777 "$RESIL_STATE_DIR" "$RESIL_RUNTIME_DIR"
	# Root would be let in by the kernel: it is the shim that refuses.
	run under "$bin/dial" -n 7 127.0.0.1 "$server_port"
	assert_equal "$(cut -d' ' -f1 <<<"$output" | sort | uniq -c | xargs)" "7 ECONNREFUSED"
	[ -z "$(find "$RESIL_STATE_DIR" "$RESIL_RUNTIME_DIR" -mindepth 1)" ] || fail "used: $(find "$RESIL_STATE_DIR" "$RESIL_RUNTIME_DIR")"
	run -1 resil doctor
	assert_output --partial "$RESIL_STATE_DIR"
}

@test "symbolic links in place of region, directory and log are not followed (threat)" {
	mkdir -m 700 "$RESIL_STATE_DIR" "$dir/elsewhere"
	calls 1 >/dev/null
	region=$(find "$RESIL_STATE_DIR" -type f)
	rm "$region"
	echo precious >"$dir/precious"
	chmod 600 "$dir/precious"
	ln -s "$dir/precious" "$region"
	RESIL_LOG=$dir/log calls 6 >/dev/null
	assert_equal "$(cat "$dir/precious")" precious
	[ -L "$region" ] || [ -f "$region" ]
	rm -rf "$RESIL_STATE_DIR"
	ln -s "$dir/elsewhere" "$RESIL_STATE_DIR"
	calls 1 >/dev/null
	[ -z "$(ls -A "$dir/elsewhere")" ] || fail "followed: $(ls -A "$dir/elsewhere")"
	rm "$RESIL_STATE_DIR"
	ln -s "$dir/precious" "$dir/log.link"
	RESIL_LOG=$dir/log.link calls 6 >/dev/null
	assert_equal "$(cat "$dir/precious")" precious
}

@test "set-user-ID programs of another user do not load it (threat)" {
	need_root "to make one"
	open_way
	cp /usr/bin/head "$dir/suid"
	chown 65533 "$dir/suid"
	chmod 4755 "$dir/suid"
	# What is mapped into it, as it sees itself.
	run bare "${someone[@]}" env LD_PRELOAD="$shim" "$dir/suid" -n 100 /proc/self/maps
	assert_output --partial "$dir/suid"
	refute_output --partial libresil
	chmod 755 "$dir/suid"
	run bare "${someone[@]}" env LD_PRELOAD="$shim" "$dir/suid" -n 100 /proc/self/maps
	assert_output --partial libresil
}

@test "control characters do not reach the terminal (threat)" {
	# A group's name is cleaned; a destination's comes from a region that any member may write.
	RESIL_GROUP=$'a\e[31mb' calls 6 >/dev/null
	run resil status
	refute_output --partial $'\e'
	region=$(find "$RESIL_STATE_DIR" -type f)
	python3 - "$region" "$name" <<-'END'
		import sys
		b = bytearray(open(sys.argv[1], "rb").read())
		name = sys.argv[2].encode()
		at, n = b.find(name), 0
		while at >= 0:
		    b[at + 1:at + 3] = b"\x1b\x07"
		    n += 1
		    at = b.find(name, at + 1)
		assert n
		with open(sys.argv[1], "r+b") as f:
		    f.write(b)
	END
	for verb in status "status --json" why "why --json" events "events --json" "top -n 1 -d 100ms" "top -n 1 -d 100ms --json" advise "advise --json" metrics members; do
		# shellcheck disable=SC2086 # words
		run bare bash -c "'$build/resil' $verb 2>&1"
		[[ $output != *$'\e'* && $output != *$'\a'* ]] || fail "$verb: $(cat -v <<<"$output")"
	done
}

@test "a failing server opens its own circuit alone (threat)" {
	peer other 127.0.0.1 answer
	RESIL_GROUP=one calls 6 >/dev/null
	RESIL_GROUP=one run -0 under curl -sS "http://127.0.0.1:$other_port/"
	assert_equal "$(destination "$name" state) $(destination "127.0.0.1:$other_port" state)" "open closed"
}

@test "what a cache keeps is its owner's: others read none of it, links and others' files are neither followed nor served (threat)" {
	need_root "to be someone else"
	open_way
	origin first
	local url=http://127.0.0.1:$first_port kept
	export RESIL_GROUP=app
	set_cache 1h
	# A folder at the cache's place that leads elsewhere: nothing is written there.
	mkdir -m 700 "$RESIL_STATE_DIR" "$dir/elsewhere"
	ln -s "$dir/elsewhere" "$RESIL_STATE_DIR/app.cache"
	get "$url/ok/a" >/dev/null
	rm "$RESIL_STATE_DIR/app.cache"
	mkdir -m 700 "$RESIL_STATE_DIR/app.cache"
	chown 65534 "$RESIL_STATE_DIR/app.cache"
	get "$url/ok/a" >/dev/null
	[ -z "$(ls -A "$dir/elsewhere" "$RESIL_STATE_DIR/app.cache" | grep -v :$)" ] || fail "written: $(ls -lA "$dir/elsewhere" "$RESIL_STATE_DIR/app.cache")"
	rmdir "$RESIL_STATE_DIR/app.cache"
	get "$url/ok/a" >/dev/null
	kept=$(find "$RESIL_STATE_DIR/app.cache" -type f)
	assert_equal "$(stat -c %a "$RESIL_STATE_DIR/app.cache") $(stat -c %a "$kept")" "700 600"
	# Not even where the directories' modes were loosened.
	chmod 711 "$RESIL_STATE_DIR" "$RESIL_STATE_DIR/app.cache"
	run "${someone[@]}" cat "$kept"
	assert_failure
	run "${someone[@]}" rm -f "$kept"
	assert_failure
	chmod 700 "$RESIL_STATE_DIR" "$RESIL_STATE_DIR/app.cache"
	# A link in the place of an answer: the next one takes its place, and nothing is written through it.
	echo precious >"$dir/precious"
	ln -sf "$dir/precious" "$kept"
	get "$url/ok/a" >/dev/null
	[ -f "$kept" ] && [ ! -L "$kept" ]
	assert_equal "$(cat "$dir/precious")" precious
	away
	assert_equal "$(get "$url/ok/a")" "/ok/a 127.0.0.1:$first_port -"
	mv "$kept" "$dir/good"
	ln -s "$dir/good" "$kept"
	run get -o "$dir/body" -w '%{http_code}' "$url/ok/a"
	assert_output 504
	rm "$kept"
	cp "$dir/good" "$kept"
	chown 65534 "$kept"
	run get -o "$dir/body" -w '%{http_code}' "$url/ok/a"
	assert_output 504
	chown 0 "$kept"
	assert_equal "$(get "$url/ok/a")" "/ok/a 127.0.0.1:$first_port -"
}

@test "a state directory that another user made first has no cache either (threat)" {
	need_root "to be someone else"
	open_way
	origin first
	local url=http://127.0.0.1:$first_port
	export RESIL_GROUP=app
	set_cache 1h
	get "$url/ok/a" >/dev/null
	local kept=$RESIL_STATE_DIR/app.cache
	[ -n "$(ls -A "$kept")" ]
	chown 65534 "$RESIL_STATE_DIR"
	get "$url/ok/b" >/dev/null
	assert_equal "$(ls -A "$kept" | wc -l)" 1
	kill -9 "$first_pid"
	wait_until is_gone "$first_pid"
	# wget blocks: a failed connect goes on to the cache, where there is one.
	run under wget -qO- "$url/ok/a"
	assert_failure
	chown 0 "$RESIL_STATE_DIR"
	run under wget -qO- "$url/ok/a"
	assert_output "/ok/a 127.0.0.1:$first_port -"
}

@test "the spool is a folder that no other user can take anything from; what another put there is not delivered (threat)" {
	need_root "to be someone else"
	open_way
	peer away 127.0.0.1 refuse
	local spool=$dir/spool
	export RESIL_SET="fallback=spool:$spool"
	sends() { under python3 -c '
import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
s.sendall(b"of mine\n"); s.shutdown(socket.SHUT_WR); s.recv(1)' "$away_port" 2>&1 | tail -n 1; }
	spooled() { find "$spool" -name '*.spool' | wc -l; }
	assert_equal "$(sends)" ""
	assert_equal "$(spooled) $(stat -c %a "$spool") $(stat -c %a "$spool"/*.spool)" "1 700 600"
	chmod 711 "$spool"
	run "${someone[@]}" cat "$spool"/*.spool
	assert_failure
	run "${someone[@]}" rm -f "$spool"/*.spool
	assert_failure
	run "${someone[@]}" "$build/resil" replay "$spool"
	assert_failure 4
	# Another's folder, and one in which anyone may remove: the program meets the failure itself.
	chown 65534 "$spool"
	assert_equal "$(sends)" "ConnectionRefusedError: [Errno 111] Connection refused"
	chown 0 "$spool"
	chmod 777 "$spool"
	assert_equal "$(sends)" "ConnectionRefusedError: [Errno 111] Connection refused"
	printf '[destination x]\nmatch = x.test\nfallback = spool:%s\n' "$spool" >"$dir/resil.conf"
	run resil check "$dir/resil.conf"
	assert_failure 2
	assert_output --partial "anyone may remove what is there"
	chmod 1777 "$spool"
	resil check "$dir/resil.conf"
	assert_equal "$(sends)" ""
	assert_equal "$(spooled)" 2
	# Files of another's, and links, lie there and are told; ours are delivered.
	"${someone[@]}" cp /dev/null "$spool/0-planted.spool"
	local one
	one=$(find "$spool" -name '1*.spool' | sort | head -n 1)
	cp "$one" "$dir/mine"
	cp "$one" "$spool/1-given.spool"
	chown 65534 "$spool/1-given.spool"
	ln -s "$dir/mine" "$spool/2-link.spool"
	peer_now away answer
	run resil replay "$spool"
	assert_failure 1
	assert_line "resil replay: 0-planted.spool: not a file of yours; it stays"
	assert_line "resil replay: 1-given.spool: not a file of yours; it stays"
	assert_line "resil replay: 2-link.spool: Too many levels of symbolic links; it stays"
	assert_equal "$(find "$spool" -type f -uid 0 | wc -l)" 0
	[ -f "$dir/mine" ]
	assert_equal "$(peer_accepted away)" 2
	# Root delivers for whoever has the folder.
	chown 65534 "$spool"
	rm "$spool/0-planted.spool" "$spool/2-link.spool"
	resil replay "$spool"
	assert_equal "$(spooled)" 0
}

@test "nobody else gets into a connection that is led through us: its ports on loopback take nothing, and are not to be had (threat)" {
	need_root "to be someone else"
	peer server 127.0.0.1 answer
	start held bare env LD_PRELOAD="$shim" RESIL_FAULTS="hang 127.0.0.1:$server_port" python3 -c '
import socket, sys
s = socket.socket(); s.connect(("127.0.0.1", int(sys.argv[1])))' "$server_port"
	hangs() { ports=$(ss -Htnp state syn-sent | sed -nE "s/.*127\.0\.0\.1:([0-9]+) +127\.0\.0\.1:([0-9]+) .*pid=$held_pid,.*/\1 \2/p") && [ -n "$ports" ]; }
	wait_until hangs
	# Its own port, and that of the listener that it waits for.
	# shellcheck disable=SC2086 # two words
	run bare "${someone[@]}" python3 -c '
import errno, socket, sys
own, door = int(sys.argv[1]), int(sys.argv[2])
def tries(what, *steps):
    s = socket.socket(); s.settimeout(0.3)
    for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
        s.setsockopt(socket.SOL_SOCKET, option, 1)
    try:
        for step in steps: step(s)
        print(what, "done")
    except socket.timeout: print(what, "nothing")
    except OSError as e: print(what, errno.errorcode[e.errno])
tries("in by its own port:", lambda s: s.connect(("127.0.0.1", own)))
tries("in by the door:", lambda s: s.connect(("127.0.0.1", door)))
tries("the door itself:", lambda s: s.bind(("127.0.0.1", door)), lambda s: s.connect(("127.0.0.1", own)))
tries("the door on all:", lambda s: s.bind(("0.0.0.0", door)))
tries("from beside it:", lambda s: s.bind(("127.0.0.2", door)), lambda s: s.connect(("127.0.0.1", own)))' $ports
	assert_output "in by its own port: ECONNREFUSED
in by the door: nothing
the door itself: EADDRINUSE
the door on all: EADDRINUSE
from beside it: ECONNREFUSED"
	hangs
	assert_equal "$(peer_accepted server)" 0
}
