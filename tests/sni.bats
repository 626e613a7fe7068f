#!/usr/bin/env bats
# `match = sni:NAME`: a connection made to an address is of the destination that it calls its server (A13).
load lib/common
load lib/table
load lib/tls

# The name is known to nobody but the connection.
by_name() { # NAME [under|bare] [OPTION]... PATH
	local name=$1 how=$2
	shift 2
	"$how" curl -sk -o /dev/null -w '%{http_code} ' --connect-to "$name:$server_port:127.0.0.1:$server_port" "${@:1:$#-1}" "$scheme://$name:$server_port${*: -1}"
}
conf() { # LINE...: of [destination pay], after `match = sni:pay.test`
	printf '%s\n' "${before-}" '[destination pay]' 'match = sni:pay.test' "$@" >"$dir/conf"
	export RESIL_CONF=$dir/conf
}
rules=('failure_threshold = 2' 'recovery_timeout = 5m' 'recovery_max = 5m')

@test "in TLS the ClientHello names it: its circuit opens, its next hello meets ECONNRESET, other names at the address go on (A13)" {
	make_certificate
	tls_peer server unavailable
	scheme=https
	run by_name pay.test bare /
	assert_output '503 '
	shim_part
	conf "${rules[@]}"
	export RESIL_GROUP=said
	for i in 1 2; do
		run by_name pay.test under /
		assert_output '503 '
	done
	state_is "pay.test:$server_port" open
	assert_equal "$(destination "pay.test:$server_port" policy)" pay
	state_is "127.0.0.1:$server_port" closed
	assert_equal "$(destination "127.0.0.1:$server_port" calls.neutral)" 2
	run by_name pay.test under /
	assert_output '000 '
	assert_failure 35
	assert_equal "$(destination "pay.test:$server_port" calls.rejected)" 1
	run by_name other.test under /
	assert_output '503 '
	assert_equal "$(destination "127.0.0.1:$server_port" calls.failure)" 1
	# Other programs name it, too.
	run under openssl s_client -connect "127.0.0.1:$server_port" -servername PAY.test </dev/null
	assert_failure
	assert_output --partial 'errno=104'
	run under python3 -c '
import socket, ssl, sys
context = ssl._create_unverified_context()
try:
    context.wrap_socket(socket.create_connection(("127.0.0.1", int(sys.argv[1]))), server_hostname="pay.test")
except ConnectionResetError:
    print("reset")' "$server_port"
	assert_output reset
	assert_equal "$(destination "pay.test:$server_port" calls.rejected)" 3
}

@test "from the ClientHello on the limits are its own, in the handshake and after it; nothing else has a rule (A13)" {
	make_certificate
	tls_peer server hello
	scheme=https
	shim_part
	before=$'[defaults]\nbreaker = off\nconnect_timeout = off' conf 'breaker = on' 'answer_timeout = 300ms'
	begin=$(now_ms)
	run by_name pay.test under --max-time 20 /
	within $(($(now_ms) - begin)) 5000 # the limit is seen in the verdict; without it curl has 20 s
	assert_failure 35
	assert_equal "$(destination "pay.test:$server_port" failures.answer_timeout)" 1
	run by_name other.test under --max-time 1 /
	assert_failure 28
	run destination "other.test:$server_port" state
	assert_failure
	tls_peer hung hang
	server_port=$hung_port
	begin=$(now_ms)
	run by_name pay.test under --max-time 20 /
	within $(($(now_ms) - begin)) 5000 # the limit is seen in the verdict; without it curl has 20 s
	assert_failure 56
	assert_equal "$(destination "pay.test:$hung_port" failures.answer_timeout)" 1
}

@test "in clear the first request names it by Host; looked up by that name, it has the rule all the same (A13)" {
	peer server 127.0.0.1 hang
	scheme=http
	shim_part
	conf "${rules[@]}" 'answer_timeout = 300ms'
	for i in 1 2; do
		run by_name pay.test under --max-time 20 /
		assert_failure 56
	done
	state_is "pay.test:$server_port" open
	run by_name pay.test under --max-time 20 /
	assert_failure 55
	assert_equal "$(destination "pay.test:$server_port" calls.rejected)" 1
	assert_equal "$(destination "127.0.0.1:$server_port" calls.failure)" 0
	# localhost is looked up: connect and request are of one circuit, which is asked once.
	printf '[destination here]\nmatch = sni:localhost\nanswer_timeout = 300ms\n' >"$dir/conf"
	run under python3 -c '
import http.client, sys
c = http.client.HTTPConnection("localhost", int(sys.argv[1]))
try:
    c.request("GET", "/")
    c.getresponse()
except OSError as e:
    print(e.errno)' "$server_port"
	assert_output 110
	assert_equal "$(destination "localhost:$server_port" calls.total)" 1
	assert_equal "$(destination "localhost:$server_port" failures.answer_timeout)" 1
}

@test "kept connections stay its own, and a reload reaches them; with key = route each request has its own (A13 B20)" {
	start paths bare python3 "$root/tests/servers/paths.py"
	wait_until file_has '^port ' "$dir/paths.out"
	server_port=$(sed -n 's/^port //p' "$dir/paths.out")
	scheme=http
	shim_part
	conf 'key = route' 'route = /a, /bad' "${rules[@]}"
	run under curl -s -o /dev/null -o /dev/null -o /dev/null -o /dev/null -w '%{http_code} ' --connect-to "pay.test:$server_port:127.0.0.1:$server_port" \
		"http://pay.test:$server_port/"{bad,bad,bad,a}
	assert_output '503 503 000 200 '
	assert_equal "$(destination "pay.test:$server_port /a" calls.success)" 1
	state_is "pay.test:$server_port /bad" open
	# Under a configuration that comes in the midst of a connection.
	cat >"$dir/session.py" <<-'END'
		import http.client, os, subprocess, sys, time
		resil, conf, port = sys.argv[1:4]
		c = http.client.HTTPConnection("127.0.0.1", int(port))
		def ask(path):
		    c.request("GET", path, headers={"Host": "pay.test"})
		    print(c.getresponse().read().decode().strip())
		ask("/a")
		with open(conf) as f:
		    text = f.read()
		with open(conf + ".new", "w") as f:
		    f.write(text.replace("key = route", "key = method\nanswer_timeout = 300ms"))
		os.rename(conf + ".new", conf)
		subprocess.run([resil, "reload"], env={k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}, stderr=subprocess.DEVNULL)
		ask("/a")
		try:
		    ask("/hang")
		except OSError as e:
		    print(e.errno)
	END
	RESIL_GROUP=session run under python3 "$dir/session.py" "$build/resil" "$dir/conf" "$server_port"
	assert_output "ok
ok
110"
	assert_equal "$(destination "pay.test:$server_port GET" failures.answer_timeout -g session)" 1
}

@test "an address that a rule names keeps its rule where that comes first; which tells of what a connection says (A13)" {
	before=$'[destination first]\nmatch = 10.0.0.0/8' conf 'deadline = 2s'
	run resil which -c "$dir/conf" --json sni:pay.test:443
	assert_success
	assert_equal "$(jq -r '.rule, .breaker' <<<"$output" | xargs)" 'pay pay.test:443'
	run resil which -c "$dir/conf" --json 10.1.2.3:443
	assert_equal "$(jq -r .rule <<<"$output")" first
}
