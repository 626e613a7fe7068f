#!/usr/bin/env bats
# The command as an operator uses it: what it says is what is so, what it cannot do it says, and how to undo what it did.
load lib/common
bats_require_minimum_version 1.5.0

setup() {
	common_setup
	shim_part
}
# json EXPRESSION: evaluated over the JSON `j` in $output.
json() { python3 -c 'import json,sys; j = json.load(sys.stdin); print('"$1"')' <<<"$output"; }
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
	run -0 --separate-stderr resil on
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
	assert_equal "$(json 'j["bypass"]')" "['group', 'user']"
	resil on
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
