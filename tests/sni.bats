#!/usr/bin/env bats
# `match = sni:NAME`: a connection made to an address is of the destination that it calls its server (A13).
load lib/common
load lib/table
load lib/tls
load lib/talk
load lib/bulkhead
load lib/services
load lib/http2

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

# The head of a request with so many cuts in it: whole lines, one octet after the other, the pieces of one vector.
in_pieces='
import json
def ask(cut, path, s=None):
    s = s or dial()
    text = b"GET %s HTTP/1.1\r\nX-Host: other.test\r\nhOsT:  pay.test:%d \r\nA: b\r\n\r\n" % (path, port)
    if cut == "lines":
        pieces = text.splitlines(keepends=True)
    elif cut == "octets":
        pieces = [text[i:i + 1] for i in range(len(text))]
    else:
        pieces = [text[:40], text[40:50], text[50:]]
    try:
        if cut == "vector":
            assert s.sendmsg(pieces) == len(text)
        else:
            for p in pieces:
                s.sendall(p)
        return answer(s)[0], s
    except OSError as e:
        return errno.errorcode[e.errno], s
'

@test "a Host that comes in pieces names its connection all the same: its circuit, its limits, its routes (A13 B20)" {
	start paths bare python3 "$root/tests/servers/paths.py"
	wait_until file_has '^port ' "$dir/paths.out"
	server_port=$(sed -n 's/^port //p' "$dir/paths.out")
	talks bare "$server_port" <<<"$in_pieces"'for cut in "lines", "octets", "vector": assert ask(cut, b"/bad")[0] == 503'
	shim_part
	conf "${rules[@]}" 'answer_timeout = 300ms'
	local cut
	for cut in lines octets vector; do
		RESIL_GROUP=$cut talks under "$server_port" <<<"$in_pieces$(
			cat <<-END
				got, s = ask("$cut", b"/bad")
				assert got == 503, got
				assert ask("$cut", b"/a", s)[0] == 200  # kept: named before
				assert ask("$cut", b"/hang")[0] == "ETIMEDOUT"
				assert ask("$cut", b"/bad", s)[0] == 503
				assert ask("$cut", b"/a")[0] == "ECONNRESET"
			END
		)"
		assert_equal "$cut: $(destination "pay.test:$server_port" state -g "$cut")" "$cut: open"
		assert_equal "$cut: $(destination "pay.test:$server_port" calls -g "$cut" | jq -c '[.success, .failure, .rejected]')" "$cut: [1,3,1]"
		assert_equal "$cut: $(destination "127.0.0.1:$server_port" calls -g "$cut" | jq -c '[.failure, .neutral, .in_flight]')" "$cut: [0,3,0]"
	done
	conf 'key = route' 'route = /a, /bad' "${rules[@]}"
	for cut in lines octets vector; do
		RESIL_GROUP=route-$cut talks under "$server_port" <<<"$in_pieces$(
			cat <<-END
				for i in range(2):
				    assert ask("$cut", b"/bad")[0] == 503
				assert ask("$cut", b"/bad")[0] == "ECONNRESET"
				got, s = ask("$cut", b"/a")
				assert got == 200, got
				assert ask("$cut", b"/bad", s)[0] == "ECONNRESET"
			END
		)"
		assert_equal "$cut: $(destination "pay.test:$server_port /bad" state -g "route-$cut")" "$cut: open"
		assert_equal "$cut: $(destination "pay.test:$server_port /a" calls.success -g "route-$cut")" "$cut: 1"
	done
}

@test "a piece that waits for a slot: what a handler ended asks again when it goes again, and its call is one (A13 D2 E1)" {
	counts server
	shim_part
	conf 'key = section' 'max_concurrent = 1' 'max_wait = 20s'
	talks under "$server_port" <<<"$named$(
		cat <<-'END'
			class Ended(Exception): pass
			is_ended, is_through = [], []
			def handler(*_):
			    is_ended.append(1)
			    raise Ended
			signal.signal(signal.SIGUSR1, handler)
			holder = dial()
			holder.sendall(request("pay.test", "gate-s"))
			assert slots("pay") == 1
			s = dial()
			s.sendall(b"GET /in-0 HTTP/1.1\r\n")
			thread = interrupts_the_wait(holder, is_ended, is_through)
			rest = b"Host: pay.test\r\n\r\n"
			try:
			    s.send(rest)
			    assert False
			except Ended:
			    s.send(rest)
			is_through.append(1)
			thread.join()
			assert slots("pay") == 1
			assert answer(s) == (200, b"ok\n")
			assert slots("pay") == 0
		END
	)"
	assert_equal "$(destination pay calls | jq -c '[.success, .failure]')" '[2,0]'
}

@test "HTTP/2 in clear: the first request's :authority names the connection, before it goes (A13 A11)" {
	serves_http2 server <<-'END'
		def asked(server, sid, path):
		    if path != "/hang":
		        server.answer(sid, int(path[1:]))
	END
	scheme=http
	run by_name pay.test bare --http2-prior-knowledge /503
	assert_output '503 '
	shim_part
	export RESIL_GROUP=said
	conf "${rules[@]}" 'answer_timeout = 300ms'
	for i in 1 2; do
		run by_name pay.test under --http2-prior-knowledge /503
		assert_output '503 '
	done
	state_is "pay.test:$server_port" open
	assert_equal "$(destination "127.0.0.1:$server_port" calls | jq -c '[.neutral, .failure]')" '[2,0]'
	run by_name pay.test under --http2-prior-knowledge /200
	assert_output '000 '
	assert_failure
	assert_equal "$(destination "pay.test:$server_port" calls.rejected)" 1
	run by_name other.test under --http2-prior-knowledge /503
	assert_output '503 '
	assert_equal "$(destination "127.0.0.1:$server_port" calls.failure)" 1
	resil reset "pay.test:$server_port"
	run by_name pay.test under --http2-prior-knowledge --max-time 20 /hang
	assert_failure
	assert_equal "$(destination "pay.test:$server_port" failures.answer_timeout)" 1
	resil reset "pay.test:$server_port"
	# By h2c it is Host that names it, by gRPC's and nghttp's own encoders :authority.
	run under nghttp -n -H ':authority: pay.test' "http://127.0.0.1:$server_port/503"
	assert_success
	assert_equal "$(destination "pay.test:$server_port" failures.http_gateway)" 3
	talks under "$server_port" <<<"$http2_prelude$http2_client$(
		cat <<-'END'
			class Named(Client):
			    def ask(self, path):
			        sid = self.h.get_next_available_stream_id()
			        self.h.send_headers(sid, [(":method", "GET"), (":path", path), (":scheme", "http"), (":authority", "pay.test")], end_stream=True)
			        self.flush()
			        return sid
			c = Named()
			sids = [c.ask("/%d" % code) for code in (200, 404, 200, 429)]
			c.until(*sids)
			assert [c.status[s] for s in sids] == [200, 404, 200, 429]
		END
	)"
	assert_equal "$(destination "pay.test:$server_port" calls.success)" 4
	assert_equal "$(destination "127.0.0.1:$server_port" calls.success)" 0
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

@test "which tells the rules that a connection goes over to by what it says, and no other; why, that they reject with ECONNRESET (A13)" {
	shim_part
	printf '%s\n' '[destination first]' 'match = 10.0.0.0/8' '[destination pay]' 'match = sni:pay.test, sni:*.shop:443' "${rules[@]}" 'key = section' \
		'[destination lan]' 'match = 192.0.2.0/24, pay.test' '[destination late]' 'match = sni:late.test' '[destination some]' 'match = exe:curl, sni:some.test' >"$dir/conf"
	said_of() { # DESTINATION [OPTION]...
		resil which -c "$dir/conf" --json "$@" | jq -r '[.said[]? | .rule + " " + .pattern] | join(", ")'
	}
	assert_equal "$(said_of 10.1.2.3:443)" ''
	assert_equal "$(said_of 192.0.2.1:443)" 'pay sni:pay.test, pay sni:*.shop:443'
	assert_equal "$(said_of 192.0.2.1:80)" 'pay sni:pay.test'
	assert_equal "$(said_of 127.0.0.1:80)" 'pay sni:pay.test, late sni:late.test'
	assert_equal "$(said_of 127.0.0.1:80 -e curl)" 'pay sni:pay.test, late sni:late.test, some sni:some.test'
	assert_equal "$(said_of pay.test:80)" 'pay sni:pay.test'
	assert_equal "$(said_of late.test:80)" 'late sni:late.test'
	assert_equal "$(said_of other.test:80)$(said_of sni:pay.test:80)$(said_of unix:/x)" ''
	run resil which -c "$dir/conf" 127.0.0.1:80
	assert_line $'rule by sni\t[destination pay]: sni:pay.test\t'"$dir/conf:3"
	# Both circuits that lead there, by the section's name and by the connection's, meet the error at a send.
	peer server 127.0.0.1 unavailable
	scheme=http
	for key in section origin; do
		conf "${rules[@]}" "key = $key"
		for i in 1 2; do RESIL_GROUP=$key by_name pay.test under / >/dev/null || true; done
		RESIL_GROUP=$key run by_name pay.test under /
		assert_failure 55
		run resil why -g "$key"
		assert_line --index 0 --regexp "^pay(.test:$server_port)? in group $key is open: resil rejects its calls at once with ECONNRESET; nothing of them reaches the network$"
	done
	# Where the connect itself has the rule, it is what is rejected.
	conf "${rules[@]}" 'match = 127.0.0.1'
	for i in 1 2; do RESIL_GROUP=address by_name other.test under / >/dev/null || true; done
	run resil why -g address
	assert_line --index 0 "127.0.0.1:$server_port in group address is open: resil rejects its calls at once with ECONNREFUSED; nothing reaches the network"
}

# A client's words for the name, and how many hold or wait for a slot of a destination (-1: none is shown).
named='
import json
def request(name, path):
    return (GET % path.encode()).replace(b"127.0.0.1", name.encode())
def slots(name, what="in_use"):
    found = [d for g in json.loads(resil("status", "--json"))["groups"] for d in g["destinations"] if d["name"] == name]
    return found[0]["bulkhead"][what] if found and found[0].get("bulkhead") else -1
def comes(said):
    end = ms() + 60000
    while not said():
        assert ms() < end, "it does not come"
        time.sleep(0.02)
def opens(gate):
    subprocess.run(["curl", "-sS", "http://127.0.0.1:%d/open-%s" % (port, gate)], env={}, stdout=subprocess.DEVNULL, check=True)
# While we wait for the slot that holder has: a signal, whose handler notes that in handled; still waiting, we get it.
def interrupts_the_wait(holder, handled, is_through):
    main = threading.main_thread().ident
    def ends():
        comes(lambda: slots("pay", "waiting") == 1)
        signal.pthread_kill(main, signal.SIGUSR1)
        comes(lambda: handled)
        comes(lambda: is_through or slots("pay", "waiting") == 1)
        assert not is_through
        opens("s")
        answer(holder)
    thread = threading.Thread(target=ends)
    thread.start()
    return thread
'

@test "max_concurrent is of whom the connection calls: the address's slot is free from there on, and none is left over (A13 D1)" {
	counts server
	scheme=http
	run by_name pay.test bare /in-0
	assert_output '200 '
	shim_part
	conf 'max_concurrent = 1' '[destination here]' 'match = 127.0.0.1' 'max_concurrent = 2'
	export RESIL_GROUP=app
	slots_are() { # of pay, of the address
		assert_equal "$(destination "pay.test:$server_port" bulkhead.in_use) $(bulkhead "$server_port" in_use)" "$1 $2"
	}
	by() { start "$1" under curl -sS --connect-to "$2:$server_port:127.0.0.1:$server_port" "http://$2:$server_port/$3"; }
	by first pay.test gate-a
	wait_until begun server gate-a
	slots_are 1 0
	run by_name pay.test under /in-1
	assert_output '000 '
	assert_failure 55
	slots_are 1 0
	assert_equal "$(destination "pay.test:$server_port" bulkhead.rejected)" 1
	assert_equal "$(server_said server 'begins in-1')" 0
	by second other.test gate-b
	by third other.test gate-b
	wait_until begun server gate-b 2
	slots_are 1 2
	run by_name other.test under /in-1
	assert_failure 7
	for gate in a b; do asked "$server_port" "open-$gate" >/dev/null; done
	wait "$first_pid" "$second_pid" "$third_pid"
	slots_are 0 0
	for name in pay other; do
		run by_name "$name.test" under /in-1
		assert_output '200 '
	done
	slots_are 0 0
}

@test "a send that names its connection waits for a slot where it blocks, also in the circuit that it has; a rule without frees it (A13 D1 D2)" {
	counts server
	shim_part
	printf '%s\n' '[destination pay]' 'match = sni:pay.test, sni:localhost' 'max_concurrent = 1' 'max_wait = 20s' \
		'[destination free]' 'match = sni:free.test' 'key = section' >"$dir/conf"
	export RESIL_CONF=$dir/conf
	cat >"$dir/session.py" <<-'END'
		def at(host):
		    s = socket.socket()
		    s.connect(socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)[0][4])
		    return s
		for host, name in ("127.0.0.1", "pay.test"), ("localhost", "localhost"):
		    of = "%s:%d" % (name, port)
		    s, t, u = at(host), at(host), at(host)
		    s.sendall(request(name, "gate-" + name))
		    assert slots(of) == 1
		    t.setblocking(False)
		    assert error_of(t.send, request(name, "in-0")) == "ECONNRESET"
		    def lets_go():
		        comes(lambda: slots(of, "waiting") == 1)
		        opens(name)
		        answer(s)  # its end is what gives the slot back
		    thread = threading.Thread(target=lets_go)
		    thread.start()
		    u.sendall(request(name, "in-0"))
		    assert answer(u) == (200, b"ok\n")
		    thread.join()
		    assert slots(of) == 0 and slots(of, "rejected") == 1
		    for c in s, t, u:
		        c.close()
	END
	talks under "$server_port" <<<"$named$(cat "$dir/session.py")"
	assert_equal "$(destination "localhost:$server_port" calls | jq -c '[.success, .neutral, .failure]')" '[2,0,0]'
	# The connect's own rule has the slot, and the name's takes none: in the circuit of both it is free again.
	printf '%s\n' '[destination free]' 'match = sni:localhost' 'max_concurrent = off' '[defaults]' 'max_concurrent = 1' >"$dir/conf"
	cat >"$dir/session.py" <<-'END'
		def at():
		    s = socket.socket()
		    s.connect(socket.getaddrinfo("localhost", port, socket.AF_INET, socket.SOCK_STREAM)[0][4])
		    return s
		for i in range(3):
		    s = at()
		    s.sendall(request("localhost", "gate-%d" % i))
		    t = at()
		    assert error_of(at) == "ECONNREFUSED"
		    t.sendall(request("localhost", "in-0"))
		    assert answer(t) == (200, b"ok\n")
		    opens(str(i))
		    assert answer(s) == (200, b"ok\n")
	END
	RESIL_GROUP=free talks under "$server_port" <<<"$named$(cat "$dir/session.py")"
}

@test "a ClientHello waits for a slot; what a handler ended asks for one again when it goes again (A13 D2 E1)" {
	counts server
	make_certificate
	tls_peer inside answer
	shim_part
	conf 'key = section' 'max_concurrent = 1' 'max_wait = 20s'
	talks under "$server_port" "$inside_port" <<<"$named$(
		cat <<-'END'
			import ssl
			handled, is_through = [], []
			signal.signal(signal.SIGUSR1, lambda *_: handled.append(1))
			holder = dial()
			holder.sendall(request("pay.test", "gate-s"))
			assert slots("pay") == 1
			thread = interrupts_the_wait(holder, handled, is_through)
			s = ssl._create_unverified_context().wrap_socket(dial(int(sys.argv[2])), server_hostname="pay.test")
			is_through.append(1)
			thread.join()
			s.sendall(request("pay.test", ""))
			assert s.recv(12) == b"HTTP/1.1 200"
		END
	)"
}

@test "a secondary is not taken for the one that it stands in for, whatever the connection calls it (A13 D4)" {
	counts server
	counts other
	scheme=http
	shim_part
	free_port=$(free_port)
	printf '%s\n' '[destination pay]' 'match = sni:pay.test' 'max_concurrent = 1' '[destination first]' "match = 127.0.0.1:$free_port" \
		"fallback = 127.0.0.1:$other_port" >"$dir/conf"
	export RESIL_CONF=$dir/conf
	under python3 -c "$client_prelude"'
s = dial()
s.sendall(GET.replace(b"127.0.0.1", b"pay.test") % b"in-0")
assert answer(s) == (200, b"ok\n")' "$free_port"
	run destination "pay.test:$other_port" state
	assert_failure
	assert_equal "$(destination "127.0.0.1:$other_port" calls.success)" 1
}
