#!/usr/bin/env bats
# What a cache has not is the next step's, for that request: the rest of the chain is walked within the connection (D4 D5 D6).
load lib/common
load lib/services
load lib/cache

setup() {
	common_setup
	export RESIL_GROUP=app
}

# /ok/kept is kept, and its server away.
kept() { # REST of the chain [SETTINGS]
	shim_part
	origin first
	export RESIL_SET="fallback=cache(1h), $1;failure_threshold=1;recovery_timeout=10m;recovery_max=10m${2-}"
	url=http://127.0.0.1:$first_port name=127.0.0.1:$first_port
	get "$url/ok/kept" >/dev/null
	away
	good="/ok/kept $name -"
}
uses() { destination "$name" fallbacks; }

@test "reply: what is kept, what is not, and again what is, in one run of curl; each counted (D5 D6)" {
	printf fixed >"$dir/fixed.txt"
	kept "reply:$dir/fixed.txt"
	assert_equal "$(get -w ' ' "$url/ok/kept" "$url/ok/other" "$url/ok/kept" "$url/ok/third")" "$good fixed $good fixed "
	run get -i "$url/ok/other"
	assert_line --partial 'X-Resil-Source: reply'
	head -c 300000 /dev/zero >"$dir/body"
	assert_equal "$(get --data-binary "@$dir/body" -w ' %{size_upload}' "$url/ok/kept")" "fixed 300000"
	assert_equal "$(get -H "X-Long: $(printf %60000s x)" "$url/ok/kept")" fixed
	assert_equal "$(under wget -qO- "$url/ok/other")" fixed
	assert_equal "$(under bash -c "exec 3<>/dev/tcp/127.0.0.1/$first_port; echo hi there >&3; cat <&3")" fixed
	run uses
	assert_output --regexp '^\{"cache":[0-9]+,"reply":[0-9]+\}$'
	assert_equal "$(destination "$name" fallbacks.cache) $(destination "$name" fallbacks.reply)" "2 7"
	assert_equal "$(destination "$name" degraded)" '["cache","reply"]'
	rm "$dir/fixed.txt" # what cannot be had is nobody's: the cache's own answer
	assert_equal "$(get -o /dev/null -w '%{http_code}' "$url/ok/other")" 504
	assert_equal "$(get "$url/ok/kept")" "$good"
}
@test "errno: what is not kept meets a reset in its connection, which SO_ERROR calls by that name (D4)" {
	kept errno:EHOSTUNREACH
	assert_equal "$(get "$url/ok/kept")" "$good"
	run get "$url/ok/other"
	assert_failure 56
	run under python3 -c '
import errno, select, socket, sys
for is_blocking in True, False:
    s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    s.sendall(b"GET /ok/other HTTP/1.1\r\nHost: x\r\n\r\n")
    if is_blocking:
        try: print("received", s.recv(100))
        except OSError as e: print(errno.errorcode[e.errno])
        continue
    s.setblocking(False)
    select.select([s], [], [], 10)
    print(errno.errorcode[s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)])' "$first_port"
	assert_output "ECONNRESET
EHOSTUNREACH"
	assert_equal "$(destination "$name" fallbacks.errno)" 3
}
@test "host:port: what is not kept goes there with every octet that was read; counted there and here (D4)" {
	origin second
	kept "127.0.0.1:$second_port"
	local there="127.0.0.1:$second_port"
	assert_equal "$(get "$url/ok/kept")" "$good"
	assert_equal "$(get "$url/ok/other")" "/ok/other $name -"
	head -c 300000 /dev/zero >"$dir/body"
	assert_equal "$(get --data-binary "@$dir/body" "$url/ok/kept")" "/ok/kept posted 300000 $name -"
	assert_equal "$(get "$url/length/300000" | wc -c)" 300000
	assert_equal "$(destination "$there" calls.success) $(destination "$there" calls.failure)" "3 0"
	assert_equal "$(uses)" '{"secondary":3,"cache":1}'
	# The rest of its connection is the secondary's.
	assert_equal "$(get -w ' %{num_connects} ' "$url/ok/kept" "$url/ok/a" "$url/ok/kept")" "$good 1 /ok/a $name - 0 $good 0 "
	assert_equal "$(destination "$there" calls.in_flight)" 0
	# Forty at once.
	output=$(get --parallel --parallel-immediate --parallel-max 40 -w ' %{http_code}\n' "$url/ok/x[1-40]")
	assert_equal "$(grep -c ' 200$' <<<"$output")" 40
	assert_equal "$(destination "$there" calls.success)" 44
}
@test "host:port that refuses, or whose circuit is open, is passed over; at the end of the chain it is the cache's answer (D4)" {
	origin second
	peer dead 127.0.0.1 refuse
	kept "127.0.0.1:$dead_port, localhost:$second_port"
	for _ in 1 2 3; do assert_equal "$(get "$url/ok/other")" "/ok/other $name -"; done
	assert_equal "$(destination "127.0.0.1:$dead_port" failures.refused) $(destination "127.0.0.1:$dead_port" calls.rejected)" "1 2"
	assert_equal "$(destination "localhost:$second_port" calls.success)" 3
	assert_equal "$(destination "$name" fallbacks.secondary)" 3
	RESIL_SET="fallback=cache(1h), 127.0.0.1:$dead_port;recovery_timeout=10m;recovery_max=10m"
	assert_equal "$(get -o /dev/null -w '%{http_code}' "$url/ok/other")" 504
	assert_equal "$(get "$url/ok/kept")" "$good"
}
@test "host:port that hangs: its limits and the call's deadline hold, and are its failures (C3 D4)" {
	peer mute 127.0.0.1 hang
	peer full 127.0.0.1 full
	kept "127.0.0.1:$mute_port" ";deadline=10s;answer_timeout=300ms"
	local ask='
import errno, socket, sys, time
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
began = time.monotonic()
s.sendall(b"GET /ok/other HTTP/1.1\r\nHost: x\r\n\r\n")
try: print("received", s.recv(100)[:12])
except OSError as e: print(errno.errorcode[e.errno], time.monotonic() - began >= float(sys.argv[2]) - 0.01)'
	assert_equal "$(under python3 -c "$ask" "$first_port" 0.3)" "ECONNRESET True"
	assert_equal "$(destination "127.0.0.1:$mute_port" failures.answer_timeout)" 1
	RESIL_SET="fallback=cache(1h), 127.0.0.1:$full_port;connect_timeout=300ms;recovery_timeout=10m;recovery_max=10m"
	assert_equal "$(under python3 -c "$ask" "$first_port" 0.3)" "received b'HTTP/1.1 504'"
	assert_equal "$(destination "127.0.0.1:$full_port" failures.connect_timeout)" 1
	resil reset "127.0.0.1:$full_port" >/dev/null
	RESIL_SET="fallback=cache(1h), 127.0.0.1:$full_port;deadline=500ms;recovery_timeout=10m;recovery_max=10m"
	assert_equal "$(under python3 -c "$ask" "$first_port" 0.3)" "ECONNRESET True"
}
@test "host:port with a bulkhead, and one that ends without a word: its place is held to the end of the connection, its failure is its own (D1 D4)" {
	origin second
	peer curt 127.0.0.1 close
	kept "127.0.0.1:$second_port" ";max_concurrent=1"
	local there="127.0.0.1:$second_port"
	under python3 -c '
import http.client, subprocess, sys
port, there, resil = sys.argv[1:]
def ask():
    c = http.client.HTTPConnection("127.0.0.1", int(port))
    c.request("GET", "/ok/other")
    return c, c.getresponse()
def in_use():
    said = subprocess.run([resil, "status", "--json", there], capture_output=True, text=True, check=True).stdout
    return said.replace(" ", "").partition("\"in_use\":")[2][0]
c, answer = ask()
assert answer.status == 200 and answer.read(), answer.status
assert in_use() == "1", in_use()
assert ask()[1].status == 504
c.close()
while in_use() != "0": pass
assert ask()[1].status == 200' "$first_port" "$there" "$build/resil"
	assert_equal "$(destination "$there" bulkhead.rejected) $(destination "$there" calls.success)" "1 2"
	RESIL_SET="fallback=cache(1h), 127.0.0.1:$curt_port;recovery_timeout=10m;recovery_max=10m"
	run get "$url/ok/other"
	assert_failure
	assert_equal "$(destination "127.0.0.1:$curt_port" calls.failure)" 1
}
@test "spool: what is not kept is, for replay, from its first octet on (D6)" {
	kept "spool:$dir/spool"
	assert_equal "$(get "$url/ok/kept")" "$good"
	run under python3 -c '
import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
said = b"POST /ok/note HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n" + 200000 * b"n"
s.sendall(said)
print(len(said))
s.shutdown(socket.SHUT_WR)
assert s.recv(1) == b"" # it is on the disk' "$first_port"
	assert_success
	local all=$output
	assert_equal "$(uses)" '{"cache":1,"spool":1}'
	assert_equal "$(ls "$dir/spool" | wc -l)" 1
	rm "$dir/first.out"
	origin first "$first_port"
	run resil replay "$dir/spool"
	assert_success
	assert_equal "$(cut -f3 <<<"$output")" "$all"
}
@test "a fork in the midst of an answer that is kept, and while the next server is being connected: nothing is lost (E4)" {
	origin second
	shim_part
	origin first
	export RESIL_SET="fallback=cache(1h), 127.0.0.1:$second_port;failure_threshold=1;recovery_timeout=10m;recovery_max=10m"
	local url=http://127.0.0.1:$first_port
	get "$url/length/250000" >/dev/null
	away
	# More answers at once than all that lies between takes: one of them is in its file when the thread is joined.
	run under python3 -c '
import os, socket, sys
def ask(target, times):
    s = socket.socket()
    s.connect(("127.0.0.1", int(sys.argv[1])))
    head = b"GET " + target + b" HTTP/1.1\r\nHost: 127.0.0.1:" + sys.argv[1].encode() + b"\r\n"
    s.sendall((head + b"\r\n") * (times - 1) + head + b"Connection: close\r\n\r\n")
    got = s.recv(1000) if times > 1 else b""
    for _ in range(3):
        pid = os.fork()
        if pid == 0: os._exit(0)
        os.waitpid(pid, 0)
        got += s.recv(100000)
    while more := s.recv(65536): got += more
    return got.count(b"x" * 240000), got.count(b"X-Resil-Source: cache")
print(ask(b"/length/250000", 20), ask(b"/length/240000", 1))' "$first_port"
	assert_output "(20, 20) (1, 0)"
}
