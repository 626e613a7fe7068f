#!/usr/bin/env bats
# The command as an operator uses it: what it says is what is so, what it cannot do it says, and how to undo what it did.
load lib/common
bats_require_minimum_version 1.5.0

setup() {
	common_setup
	shim_part
}
teardown() {
	common_teardown
	[ -z "${shared-}" ] || rm -rf "$shared"
}
# json EXPRESSION: evaluated over the JSON `j` in $output.
json() { python3 -c 'import json,sys; j = json.load(sys.stdin); print('"$1"')' <<<"$output"; }
asked() { run --separate-stderr resil "$@"; }
# A group `dial` with one circuit, closed.
group() {
	peer server 127.0.0.1 answer
	name=127.0.0.1:$server_port
	under "$bin/dial" 127.0.0.1 "$server_port"
}

@test "on -g under a bypass of the user tells that the group is still off; status and its JSON show it" {
	group
	run --separate-stderr resil status --json
	assert_equal "$(json 'j["groups"][0]["bypass"]')" "[]"
	resil off -g dial
	run -0 --separate-stderr resil status
	[[ $stderr == *"group dial is off"*"'resil on -g dial' undoes it"* ]] || fail "$stderr"
	resil on -g dial
	resil off
	run -1 --separate-stderr resil on -g dial
	assert_output "dial	off"
	[[ $stderr == *"every group of yours is off"*"'resil on' undoes it"* ]] || fail "$stderr"
	run -0 --separate-stderr resil status
	[[ $stderr == *"every group of yours is off"* ]] || fail "$stderr"
	run --separate-stderr resil status --json
	assert_equal "$(json 'j["groups"][0]["bypass"]')" "['user']"
	resil off -g dial
	run --separate-stderr resil status --json
	assert_equal "$(json 'j["groups"][0]["bypass"]')" "['group', 'user']"
	# Each is undone by the same options, and by no others.
	run -1 --separate-stderr resil on
	assert_output "dial	off"
	[[ $stderr == *"group dial is off"*"'resil on -g dial' undoes it"* ]] || fail "$stderr"
	run -0 --separate-stderr resil on -g dial
	assert_output "dial	on"
	run -0 --separate-stderr resil status
	assert_equal "$stderr" ""
}

@test "status shows a bypass of the user where there is no group yet" {
	resil off
	run -0 --separate-stderr resil status
	[[ $stderr == *"every group of yours is off"* ]] || fail "$stderr"
}

@test "/health shows a bypass, of the group and of the user" {
	peer server 127.0.0.1 answer
	printf '[resil]\ncontrol = on\n' >"$dir/resil.conf"
	RESIL_CONF=$dir/resil.conf start one under "$bin/dial" -n 100000 -i 50 127.0.0.1 "$server_port"
	health() { run curl -sS -m 5 --unix-socket "$RESIL_RUNTIME_DIR/dial.sock" http://resil/health; }
	answers() { health && [ "$status" = 0 ]; }
	wait_until answers
	assert_equal "$(json 'j["bypass"]')" "[]"
	resil off
	health
	assert_equal "$(json 'j["bypass"]')" "['user']"
	resil off -g dial
	health
	assert_equal "$(json 'j["bypass"]')" "['group', 'user']"
	resil on || true # the group is off still
	health
	assert_equal "$(json 'j["bypass"]')" "['group']"
	resil on -g dial
	health
	assert_equal "$(json 'j["bypass"]')" "[]"
}

@test "/health of a process with private state shows a bypass of the user" {
	peer server 127.0.0.1 answer
	printf '[resil]\ncontrol = on\nstate = private\n' >"$dir/resil.conf"
	mkdir -m 700 "$RESIL_STATE_DIR"
	RESIL_CONF=$dir/resil.conf start one under "$bin/dial" -n 100000 -i 50 127.0.0.1 "$server_port"
	socket=$RESIL_RUNTIME_DIR/dial.$one_pid.sock
	bypass_is() {
		run curl -sS -m 5 --unix-socket "$socket" http://resil/health
		[ "$status" = 0 ] && [ "$(json 'j["bypass"]')" = "$1" ]
	}
	wait_until bypass_is "[]"
	resil off
	wait_until bypass_is "['user']"
}

@test "the failure rate is the same in the table, in JSON and in /health: unknown while it is, and then what it is" {
	peer server 127.0.0.1 refuse
	name=127.0.0.1:$server_port
	printf '[resil]\ncontrol = on\n[defaults]\nfailure_threshold = 30\nrecovery_timeout = 1h\nrecovery_max = 1h\n' >"$dir/resil.conf"
	export RESIL_CONF=$dir/resil.conf
	rates() {
		resil status | cut -f5
		destination "$name" failure_rate
		curl -sS -m 5 --unix-socket "$RESIL_RUNTIME_DIR/dial.sock" http://resil/health |
			python3 -c 'import json, sys; print(json.dumps(json.load(sys.stdin)["breakers"]["'"$name"'"]["failure_rate"]))'
	}
	# 25 failures: enough to speak of a rate, closed still.
	under "$bin/dial" -n 25 127.0.0.1 "$server_port" || true
	start one under "$bin/dial" -n 2 -i 100000 127.0.0.1 "$server_port"
	serves() { curl -sS -m 5 --unix-socket "$RESIL_RUNTIME_DIR/dial.sock" http://resil/health >/dev/null 2>&1; }
	wait_until serves
	assert_equal "$(rates | tr -d '"' | xargs)" "100.00% 100.00% 100.00%"
	# The opening begins a new window: nothing is known of it yet.
	under "$bin/dial" -n 5 127.0.0.1 "$server_port" || true
	assert_equal "$(destination "$name" state)" open
	assert_equal "$(rates | xargs)" "- null null"
}

@test "reset under a mode set by hand tells that it stays, and how to undo it (B15)" {
	group
	resil force "$name" open --forever
	asked reset "$name" -g dial
	assert_success
	assert_output --partial forced_open
	[[ $stderr == *"$name of group dial stays forced_open"*"'resil force $name auto -g dial'"* ]] || fail "$stderr"
	resil force "$name" auto
	asked reset "$name"
	assert_success
	assert_equal "$stderr" ""
}

# refused REGEXP: status says what is wrong and ends with 1, with --exit-code as well.
refused() {
	asked status
	assert_failure 1
	[[ $stderr =~ $1 ]] || fail "$stderr"
	[[ $stderr != *"has made a connection"* ]] || fail "$stderr"
	asked status --exit-code
	assert_failure 1
	asked status --json
	assert_failure 1
}

@test "a damaged region: status says so, with 1, and does not say that nothing has connected" {
	group
	python3 - "$RESIL_STATE_DIR"/dial.* <<-'END'
		import os, random, sys
		random.seed(3)
		with open(sys.argv[1], "r+b") as f:
		    f.seek(4096)
		    f.write(random.randbytes(os.path.getsize(sys.argv[1]) - 4096))
	END
	refused "region of group dial is damaged: .*; remove .*/dial\..* when none of its programs run"
}

@test "a state directory that the shim refuses: status says why, with 1" {
	mkdir "$dir/elsewhere"
	ln -s elsewhere "$RESIL_STATE_DIR"
	refused "$RESIL_STATE_DIR is a symbolic link: .* keeps circuits of its own"
	rm "$RESIL_STATE_DIR"
	mkdir -m 755 "$RESIL_STATE_DIR"
	refused "$RESIL_STATE_DIR is open to others .mode 755.*chmod 700"
	rmdir "$RESIL_STATE_DIR"
	echo >"$RESIL_STATE_DIR"
	refused "$RESIL_STATE_DIR is no directory"
	rm "$RESIL_STATE_DIR"
	need_root "to give it away"
	mkdir -m 700 "$RESIL_STATE_DIR"
	chown 65534 "$RESIL_STATE_DIR"
	refused "$RESIL_STATE_DIR belongs to user 65534"
}

@test "a state directory that is not there, or cannot be made, is told apart" {
	asked status
	assert_success
	[[ $stderr == *"no guarded program has made a connection"* ]] || fail "$stderr"
	export RESIL_STATE_DIR=/proc/nowhere/state
	refused "/proc/nowhere/state cannot be made: .* keeps circuits of its own"
}

# events TYPE FIELD: of all events of the type, oldest first.
events() {
	resil events --json | python3 -c '
import json, sys
for line in sys.stdin:
    e = json.loads(line)
    if e["type"] == sys.argv[1]:
        print(e[sys.argv[2]])' "$@"
}

@test "events: a run of rejections has its count, and members leave with a detach" {
	peer server 127.0.0.1 refuse
	RESIL_SET='failure_threshold=1;recovery_timeout=1h;recovery_max=1h' under "$bin/dial" -n 8 127.0.0.1 "$server_port" || true
	assert_equal "$(events rejected count)" 7
	run resil events
	assert_output --partial '7 rejected'
	# A wait that ends: the run ends with it, and the transition tells its length too.
	resil reset "127.0.0.1:$server_port"
	RESIL_SET='failure_threshold=1;recovery_timeout=500ms;recovery_max=500ms' under "$bin/dial" -n 4 127.0.0.1 "$server_port" || true
	peer_now server answer
	RESIL_SET='failure_threshold=1;recovery_timeout=500ms;recovery_max=500ms' under "$bin/dial" -n 500 -i 20 -u 127.0.0.1 "$server_port"
	run resil events
	assert_output --regexp 'open -> half_open: recovery time over; [0-9]+ had been rejected'
	assert_equal "$(events detach exe | sort -u)" dial
	assert_equal "$(events detach pid | sort)" "$(events attach pid | sort)"
}

@test "operands that are too many, empty or meaningless are refused, by every verb" {
	group
	while read -r -a words; do
		run resil "${words[@]}"
		assert_failure 2
		assert_output --partial "Try 'resil help ${words[0]}'"
	done <<-END
		status $name $name
		events extra
		which $name $name
		doctor sh extra
		force $name open extra --forever
		force $name auto --for 10m
		force $name auto --forever
		reset $name $name
		off extra
		on extra
		reload extra
		members extra
		metrics extra
		version extra
		help status extra
		check one two
	END
	run resil check ''
	assert_failure 2
	run resil which -c '' "$name"
	assert_failure 2
	run resil run -c '' -- true
	assert_failure 125
}

@test "run: a fault of -s is told as that option; --deadline without a time says so; nothing is said twice" {
	RESIL_SET=success_threshold=no run -125 resil run -s bar=2 -s stall_timeout=5 -- touch "$dir/started"
	assert_line --index 0 --regexp "^RESIL_SET: success_threshold"
	assert_line --index 1 --regexp "^-s bar=2: unknown key"
	assert_line --index 2 --regexp "^-s stall_timeout=5: stall_timeout: a unit is due"
	run -125 resil run --deadline -- touch "$dir/started"
	assert_line --index 0 "resil run: --deadline: a time is due, such as 5s"
	[ ! -e "$dir/started" ]
	run -3 resil status -p 4194305 # above any pid_max
	assert_output "resil: there is no process 4194305"
}

@test "a word that is no verb: what is near it, else the list" {
	run -2 resil stauts
	assert_line --index 0 "resil: no such verb 'stauts'; did you mean 'status'?"
	run -2 resil foo
	assert_line --index 0 --regexp "^resil: no such verb 'foo'; there are run, status, .*, help$"
	run -2 resil help nope
	assert_line --index 0 --regexp "^resil: no such verb 'nope'; there are run, status"
}

@test "which: a unix socket that is named for some executables only" {
	printf '[destination x]\nmatch = unix:/tmp/x, exe:cu*\n' >"$dir/resil.conf"
	run -0 resil which -c "$dir/resil.conf" unix:/tmp/x
	assert_output "unix:/tmp/x is not guarded: named at $dir/resil.conf:1, but only for exe:cu*; try -e NAME"
	run -0 resil which -c "$dir/resil.conf" -e curl unix:/tmp/x
	assert_output --partial "[destination x]"
	run -0 resil which -c "$dir/resil.conf" unix:/tmp/y
	assert_output "unix:/tmp/y is not guarded: no match names it"
}

@test "doctor: a state directory that cannot be made is one problem, and not fine as well" {
	RESIL_STATE_DIR=$dir/absent/state run -1 resil doctor
	assert_line --regexp "^problem	state	$dir/absent/state cannot be made: $dir/absent cannot be written"
	refute_line --regexp '^ok	state'
	RESIL_STATE_DIR=$dir/state run resil doctor
	assert_line --regexp "^ok	state	$dir/state is not there yet"
}

@test "options after an operand hold: doctor, force, status" {
	group
	asked doctor sh --json
	assert_success
	assert_equal "$(json 'j["findings"][-1]["verdict"]')" ok
	asked status "$name" --json
	assert_equal "$(json 'j["groups"][0]["group"]')" dial
}

@test "--json everywhere: metrics, help, reload, doctor" {
	group
	asked metrics --json
	assert_success
	assert_equal "$(json '[(m["type"], m["value"]) for m in j["metrics"] if m["name"] == "resil_circuit_state" and m["labels"] == {"group": "dial", "destination": "'"$name"'"}]')" "[('gauge', 0)]"
	# As many samples as the text has, and of the same names.
	assert_equal "$(json '"\n".join(m["name"] for m in j["metrics"])')" "$(resil metrics | grep -v '^#' | sed 's/[{ ].*//')"
	asked help --json
	assert_equal "$(json '"status" in [v["verb"] for v in j["verbs"]]')" True
	asked help force --json
	assert_equal "$(json 'len(j["verbs"]), "--forever" in j["verbs"][0]["help"]')" "1 True"
	asked reload --json
	assert_success
	assert_equal "$(json 'j["groups"][0]["outcome"], j["groups"][0]["members"]')" "nobody 0"
	printf '[resil]\ncontrol = on\n' >"$dir/resil.conf"
	RESIL_CONF=$dir/resil.conf start one under "$bin/dial" -n 100000 -i 50 127.0.0.1 "$server_port"
	serves() { curl -sS -m 5 --unix-socket "$RESIL_RUNTIME_DIR/dial.sock" http://resil/health >/dev/null 2>&1; }
	wait_until serves
	asked reload --json
	assert_equal "$(json 'j["groups"]')" "[{'group': 'dial', 'outcome': 'reloaded', 'members': 1, 'errors': []}]"
	printf '[resil]\ncontrol = on\nbogus = "x]"\n' >"$dir/resil.conf"
	asked reload --json
	assert_failure 1
	assert_equal "$(json 'j["groups"][0]["outcome"], len(j["groups"][0]["errors"])')" "refused 1"
	asked doctor "$one_pid" --json
	assert_equal "$(json 'sorted(j["findings"][0])')" "['text', 'topic', 'verdict']"
}

@test "names of hosts compare in any case: status, force, reset, which and the socket" {
	peer server 127.0.0.1 answer
	name=localhost:$server_port other=LocalHost:$server_port
	printf '[resil]\ncontrol = on\n' >"$dir/resil.conf"
	RESIL_CONF=$dir/resil.conf start one under "$bin/dial" -n 100000 -i 50 localhost "$server_port"
	serves() { curl -sSf -m 5 --unix-socket "$RESIL_RUNTIME_DIR/dial.sock" "http://resil/v1/destinations/$other" >/dev/null 2>&1; }
	wait_until serves
	asked status "$other"
	assert_success
	assert_output --partial "$name"
	asked force "$other" closed --for 10m
	assert_success
	asked reset "$other"
	assert_success
	asked status "${other}0"
	assert_failure 3
}

@test "groups a/b and a_b are two: one's open circuit is not the other's (E11)" {
	peer server 127.0.0.1 refuse
	name=127.0.0.1:$server_port
	RESIL_GROUP=a/b under "$bin/dial" -n 5 127.0.0.1 "$server_port" || true
	RESIL_GROUP=a_b under "$bin/dial" 127.0.0.1 "$server_port" || true
	assert_equal "$(destination "$name" state -g a/b)" open
	assert_equal "$(destination "$name" state -g a_b)" closed
}

@test "--all-users shows whose each group is" {
	need_root "to see every user's groups"
	# A user and a group that nobody else has, whatever else runs on this machine.
	user=$((60000 + BASHPID % 5000)) shared=/dev/shm/resil-$user
	[ ! -e "$shared" ] || skip "$shared is in use"
	export RESIL_GROUP=of-$user
	RESIL_STATE_DIR=$shared group
	chown -R "$user" "$shared"
	asked status --all-users
	table=$output
	asked members --all-users
	asked status --all-users --json
	asked_json=$output
	asked force "$name" open --forever --all-users
	forced=$output$stderr
	asked off -g "$RESIL_GROUP" --all-users
	asked status --all-users
	[[ $table == *"$user	of-$user	$name	closed"* ]] || fail "$table"
	output=$asked_json
	assert_equal "$(json '[g["group"] for g in j["groups"] if g["user"] == "'"$user"'"]')" "['of-$user']"
	[[ $forced == *"$user	of-$user	$name	forced_open"*"resil force $name auto --all-users"* ]] || fail "$forced"
	[[ $stderr == *"'resil on -g of-$user --all-users' undoes it"* ]] || fail "$stderr"
}

@test "members names the group, also where there is only one" {
	shared=$(mktemp -d)
	peer server 127.0.0.1 refuse
	cat >"$shared/app.py" <<-END
		import socket, subprocess
		socket.socket().connect_ex(("127.0.0.1", $server_port))
		subprocess.run(["$build/resil", "members"])
	END
	run -0 --separate-stderr under /usr/bin/python3 "$shared/app.py"
	assert_output --regexp $'^python3[.0-9]*-app.py\t[0-9]+\tpython3'
}

@test "force without -g tells in which groups it set the circuit, and what undoes it" {
	group
	RESIL_GROUP=other under "$bin/dial" 127.0.0.1 "$server_port"
	RESIL_GROUP=third under "$bin/dial" 127.0.0.1 1 || true
	run -0 --separate-stderr resil force "$name" open --forever
	assert_equal "$stderr" "resil: set by hand in dial, other; undo it with: resil force $name auto"
	run -0 --separate-stderr resil force "$name" closed --forever -g other
	assert_equal "$stderr" "resil: set by hand in other; undo it with: resil force $name auto -g other"
}

@test "what undoes a change repeats its options" {
	group
	start one under "$bin/dial" -n 1000 -i 100 127.0.0.1 "$server_port"
	wait_until test -s "$dir/one.out"
	asked force "$name" open --forever -p "$one_pid" -g dial
	[[ $stderr == *"resil force $name auto -g dial -p $one_pid"* ]] || fail "$stderr"
	asked off -p "$one_pid"
	[[ $stderr == *"'resil on -p $one_pid' undoes it"* ]] || fail "$stderr"
	asked status -p "$one_pid"
	[[ $stderr == *"'resil on -p $one_pid' undoes it"* ]] || fail "$stderr"
	asked on -p "$one_pid"
	assert_success
	asked off
	[[ $stderr == *"'resil on' undoes it"* ]] || fail "$stderr"
}

@test "breaker = observe is seen in status" {
	peer server 127.0.0.1 refuse
	name=127.0.0.1:$server_port
	RESIL_SET='breaker=observe' under "$bin/dial" -n 6 127.0.0.1 "$server_port" || true
	asked status
	assert_output --partial "$name	observe:open"
	assert_equal "$(destination "$name" mode)" observe
	run resil metrics
	assert_line --regexp 'resil_circuit_mode\{.*\} 3$'
	asked reset "$name"
	assert_equal "$stderr" "" # nobody has set it by hand
	RESIL_SET='breaker=on' under "$bin/dial" 127.0.0.1 "$server_port" || true
	assert_equal "$(destination "$name" mode)" auto
}

@test "which --json has the same values as the table, for this machine's own addresses too" {
	asked which 127.0.0.1:80 --json
	assert_equal "$(json 'j["values"]["recovery_max"]["value"]')" 2s
	asked which 127.0.0.1:80
	assert_line --regexp '^recovery_max	2s	'
	asked which 192.0.2.1:80 --json
	assert_equal "$(json 'j["values"]["recovery_max"]["value"]')" 30s
}

@test "the generation counts a reload by one" {
	peer server 127.0.0.1 answer
	printf '[resil]\ncontrol = on\n' >"$dir/resil.conf"
	export RESIL_CONF=$dir/resil.conf
	start one under "$bin/dial" -n 100000 -i 20 127.0.0.1 "$server_port"
	reload() { curl -sS -m 5 --unix-socket "$RESIL_RUNTIME_DIR/dial.sock" -X POST http://resil/v1/reload 2>/dev/null; }
	serves() { [ "$(reload)" = '{"generation":1}' ]; }
	wait_until serves
	# The member that tried it is told of it as well, at its next call.
	lines=$(wc -l <"$dir/one.out")
	has_called() { [ "$(wc -l <"$dir/one.out")" -gt $((lines + 2)) ]; }
	wait_until has_called
	assert_equal "$(reload)" '{"generation":2}'
	assert_equal "$(events reload generation | xargs)" "1 2"
	assert_equal "$(resil metrics | sed -n 's/^resil_config_generation.* //p')" 2
}

@test "RETRY is a time as people write it" {
	peer server 127.0.0.1 refuse
	RESIL_SET='failure_threshold=1;recovery_timeout=900ms;recovery_jitter=0%' under "$bin/dial" 127.0.0.1 "$server_port" || true
	run resil status
	assert_output --regexp $'\topen\t[0-9]+ms\t|\topen\tdue\t'
	RESIL_GROUP=long RESIL_SET='failure_threshold=1;recovery_timeout=90s;recovery_max=90s;recovery_jitter=0%' under "$bin/dial" 127.0.0.1 "$server_port" || true
	run resil status -g long
	assert_output --regexp $'\topen\t(8[0-9]\\.[0-9]|90\\.0)s\t'
}

@test "a fault of the configuration is told whole, in the event and in the log" {
	peer server 127.0.0.1 answer
	printf '[resil]\ncontrol = on\nlog = %s\n' "$dir/resil.log" >"$dir/resil.conf"
	export RESIL_CONF=$dir/resil.conf
	start one under "$bin/dial" -n 100000 -i 20 127.0.0.1 "$server_port"
	serves() { curl -sS -m 5 --unix-socket "$RESIL_RUNTIME_DIR/dial.sock" http://resil/health >/dev/null 2>&1; }
	wait_until serves
	echo 'failure_treshold = 5' >>"$dir/resil.conf"
	fault=$(resil check 2>&1) || true
	[ "${#fault}" -gt 80 ] || fail "too short a fault: $fault"
	run resil reload
	assert_failure 1
	assert_equal "$(events config_error reason)" "$fault"
	run cat "$dir/resil.log"
	assert_line --partial "configuration: $fault"
}
