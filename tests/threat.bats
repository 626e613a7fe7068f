#!/usr/bin/env bats
# What SECURITY.md says that another user, a member gone bad and an untrusted peer cannot do.
load lib/common
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
