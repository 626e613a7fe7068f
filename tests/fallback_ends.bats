#!/usr/bin/env bats
# End points in the process as steps of `fallback`: what a program meets while its destination is away (D4 D6 D11).
load lib/common
load lib/clients
load lib/services

setup() {
	common_setup
	export RESIL_GROUP=app
}

@test "reply: after a failure for a program that blocks, after a rejection for all; counted, and named in status (D6)" {
	peer first 127.0.0.1 refuse
	shim_part
	printf '{"offline": true}\n' >"$dir/x.json"
	export RESIL_SET="fallback=reply:$dir/x.json;failure_threshold=2;recovery_timeout=1m;recovery_max=1m"
	local url=http://127.0.0.1:$first_port/
	assert_equal "$(under wget -qO- "$url")" '{"offline": true}'
	run under curl -sS "$url"
	assert_failure 7
	state_is "127.0.0.1:$first_port" open
	assert_equal "$(under wget -qO- "$url")" '{"offline": true}'
	assert_equal "$(under curl -sS "$url")" '{"offline": true}'
	assert_equal "$(under curl -sS --parallel "$url?[1-30]" | sort | uniq -c | xargs)" '30 {offline: true}'
	assert_equal "$(under node -e "require('http').get('$url',r=>{r.on('data',d=>process.stdout.write(d))})")" '{"offline": true}'
	assert_equal "$(under python3 -c "
import socket
s = socket.create_connection(('127.0.0.1', $first_port))
print(s.getpeername() == ('127.0.0.1', $first_port))
s.sendall(b'GET / HTTP/1.0\r\n\r\n')
print(s.recv(15))")" "True
b'HTTP/1.1 200 OK'"
	[ "$(destination "127.0.0.1:$first_port" fallbacks.reply)" -ge 6 ]
}
@test "reply that is not there, then spool: kept, and delivered once the destination is back (D6)" {
	peer first 127.0.0.1 refuse
	shim_part
	export RESIL_SET="fallback=reply:$dir/gone, spool:$dir/spool"
	under python3 -c "
import socket
s = socket.create_connection(('127.0.0.1', $first_port))
s.sendall(b'first words\n')
s.shutdown(socket.SHUT_WR)
assert s.recv(1) == b''"
	run resil replay "$dir/spool"
	assert_failure 1
	peer_now first answer
	run resil replay "$dir/spool"
	assert_success
	assert_equal "$(cut -f2,3 <<<"$output")" "127.0.0.1:$first_port	12"
	assert_equal "$(destination "127.0.0.1:$first_port" fallbacks.spool)" 1
}
@test "every fault at once hits no door of ours (CONTRACT 5: none touches resil's own socket)" {
	peer first 127.0.0.1 answer
	shim_part
	echo hello >"$dir/x.txt"
	export RESIL_SET="fallback=reply:$dir/x.txt" RESIL_FAULTS='refuse *'
	assert_equal "$(under wget -qO- "http://127.0.0.1:$first_port/")" hello
}
