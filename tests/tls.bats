#!/usr/bin/env bats
# TLS: seen from inside where libssl or libgnutls is a shared library, by its records elsewhere (A9, A10). The whole table of clients and
# faults is long/tls.bats.
load lib/common
load lib/clients
load lib/talk
load lib/services
load lib/table
load lib/tls

setup() {
	common_setup
	make_certificate
}

# opaque NAME SETTINGS STEPS...: tls_client (programs/tls_client.c), bare or under; its words in $dir/NAME.out.
opaque() { # HOW PORT SETTINGS STEPS...
	local how=$1 port=$2 set=$3 code=0
	shift 3
	RESIL_SET=$set "$how" "$bin/tls_client" "$port" "$@" >"$dir/opaque.out" 2>&1 || code=$?
	echo "$code" >>"$dir/opaque.out"
}
ended_at() { # STEP LIMIT: the last step failed with ETIMEDOUT, LIMIT ms after the connect at the earliest
	run cat "$dir/opaque.out"
	assert_line --regexp "^$1 (ETIMEDOUT|EPIPE|ECONNRESET) after [0-9]+ ms\$"
	assert_line --index -1 1
	local took
	took=$(sed -nE "s/^$1 [A-Z]+ after ([0-9]+) ms/\1/p" "$dir/opaque.out")
	[ "$took" -ge $(($2 - 1)) ] || fail "after $took ms in place of $2"
}
went_well() {
	run cat "$dir/opaque.out"
	assert_line --index -1 0
}

@test "curl: TLS completed and then silence, half an answer, 503 inside, a fatal alert (A1 A9 C1 C5 A14)" {
	faults() {
		cat <<-'EOF'
			hang         answer_timeout=600ms  600   in      answer_timeout
			half         stall_timeout=600ms   600   out     stall_timeout
			unavailable  breaker=on            0     -       http_gateway
			alert        breaker=on            0     -       tls
		EOF
	}
	row curl
}

@test "asyncio, whose TLS passes through memory: half an answer and 503 inside (A9 C5)" {
	faults() {
		cat <<-'EOF'
			half         stall_timeout=600ms   600   out     stall_timeout
			unavailable  breaker=on            0     -       http_gateway
		EOF
	}
	row asyncio
}

@test "psql is led into TLS by the server's consent, and then never answered (A12 A1)" {
	faults() { echo "hang answer_timeout=600ms 600 in answer_timeout"; }
	row psql
}

@test "two TLS libraries in one program: each object reaches its own (A9)" {
	run bare "$bin/two_tls" "$bin/tls_plugin"
	assert_output "each to its own"
	shim_part
	run under "$bin/two_tls" "$bin/tls_plugin"
	assert_output "each to its own"
}

ways='write:read write_ex:read_ex write:peek send:recv send2:seq cork:recv range:packet file:recv cork:packet'
one_each() { # ANSWERS [WORD]...: what tls_ways says of them all
	local way
	for way in $ways; do echo "$way $*"; done
}

@test "two TLS libraries in one program, by every way that they have to send and to receive: each request is a call (A9)" {
	tls_peer server answer
	run bare "$bin/tls_ways" "$server_port" $ways
	assert_output "$(one_each 2)"
	shim_part
	RESIL_SET='answer_timeout=10s' run under "$bin/tls_ways" "$server_port" $ways
	assert_output "$(one_each 2)"
	assert_equal "$(tally "$server_port")" "18 success"
	# Half an answer is none, whatever reads it.
	tls_peer halves half
	RESIL_SET='stall_timeout=300ms;failure_threshold=0' run under "$bin/tls_ways" "$halves_port" $ways
	assert_output "$(one_each 0 ETIMEDOUT)"
	assert_equal "$(tally "$halves_port")" "9 failure stall_timeout 9"
	# And 503 is one.
	tls_peer away unavailable
	RESIL_SET='failure_threshold=0' run under "$bin/tls_ways" "$away_port" $ways
	assert_equal "$(tally "$away_port" | tr -dc '[:alpha:]_ ')" " failure http_gateway "
}

# nginx that takes 0-RTT; with $dir/hang there, a request that came so is never answered. Its port in early_port.
early_start() {
	peer hung 127.0.0.1 hang
	early_port=$(free_port)
	mkdir "$dir/early.d"
	cat >"$dir/early.conf" <<-END
		daemon off;
		user $(id -un);
		pid $dir/early.d/pid;
		error_log stderr;
		events {}
		http {
			access_log off;
			client_body_temp_path $dir/early.d/a; proxy_temp_path $dir/early.d/b; fastcgi_temp_path $dir/early.d/c;
			uwsgi_temp_path $dir/early.d/d; scgi_temp_path $dir/early.d/e;
			server {
				listen 127.0.0.1:$early_port ssl;
				ssl_certificate $certificate;
				ssl_certificate_key $certificate;
				ssl_protocols TLSv1.3;
				ssl_early_data on;
				ssl_session_cache shared:sessions:1m;
				location / {
					set \$which \$connection_requests\$ssl_session_reused;
					if (-f $dir/hang) { set \$which "\${which} hangs"; }
					if (\$which != "1r hangs") { return 200 "ok\n"; }
					proxy_pass http://127.0.0.1:$hung_port;
				}
			}
		}
	END
	start early bare nginx -c "$dir/early.conf" -e stderr
	up early "$early_pid" "$early_port"
}

@test "a request that goes before the handshake (0-RTT): what answers it is seen, and what does not is ended (A9 A10 C1)" {
	early_start
	run bare "$bin/tls_ways" "$early_port" early:read
	assert_output 'early:read 2'
	shim_part
	RESIL_SET='answer_timeout=10s' run under "$bin/tls_ways" "$early_port" early:read
	assert_output 'early:read 2'
	assert_equal "$(tally "$early_port")" "4 success"
	touch "$dir/hang"
	RESIL_SET='answer_timeout=300ms' run under "$bin/tls_ways" "$early_port" early:read_ex
	assert_output 'early:read_ex 0 ETIMEDOUT'
	assert_equal "$(tally "$early_port")" "6 success 1 failure answer_timeout 1"
	RESIL_SET='deadline=700ms' run under "$bin/tls_ways" "$early_port" early:peek
	assert_output 'early:peek 0 ETIMEDOUT'
	assert_equal "$(tally "$early_port")" "8 success 2 failure answer_timeout 1 deadline 1"
}

@test "from outside: no ServerHello, and no answer after the handshake: an end at the limit (A10 A1)" {
	tls_peer silent hello
	tls_peer hung hang tickets=0
	opaque bare "$hung_port" "" hello 0 wait 300
	went_well
	shim_part
	opaque under "$silent_port" answer_timeout=300ms hello 0
	ended_at hello 300
	assert_equal "$(tally "$silent_port")" "1 failure answer_timeout 1"
	opaque under "$hung_port" answer_timeout=300ms hello 0 ask read 1
	ended_at read 300
	assert_equal "$(tally "$hung_port")" "1 failure answer_timeout 1"
}

@test "from outside: tickets are no answer: they hold off answer_timeout, not deadline, and make no success (A10)" {
	tls_peer hung hang version=1.3
	opaque bare "$hung_port" "" hello 0 ask wait 100
	went_well
	shim_part
	opaque under "$hung_port" 'answer_timeout=200ms;deadline=700ms' hello 0 ask read 1
	ended_at read 700
	assert_equal "$(tally "$hung_port")" "1 failure deadline 1"
}

@test "from outside: calls by turns of speaking, tickets between (A10 A2)" {
	tls_peer server answer version=1.3
	opaque bare "$server_port" "" hello 0 ask read 41 ask read 41
	went_well
	shim_part
	opaque under "$server_port" answer_timeout=2s hello 0 ask read 41 ask read 41 end
	went_well
	assert_equal "$(tally "$server_port")" "2 success"
	tls_peer older answer version=1.2
	opaque under "$older_port" answer_timeout=2s hello 0 ask read 41 ask read 41 end
	went_well
	assert_equal "$(tally "$older_port")" "2 success"
}

@test "from outside: a handshake and nothing asked is how pools warm up; used three limits later it is well (A7 B7)" {
	tls_peer server answer
	opaque bare "$server_port" "" hello 0 wait 900 ask read 41
	went_well
	shim_part
	opaque under "$server_port" 'answer_timeout=300ms;stall_timeout=300ms;deadline=400ms' hello 0 wait 1200 ask read 41
	went_well
	assert_equal "$(tally "$server_port")" "1 success"
	opaque under "$server_port" 'answer_timeout=300ms' hello 0 wait 900 end
	went_well
	assert_equal "$(tally "$server_port")" "1 success 1 neutral"
}

@test "from outside: a fatal alert, an end inside the handshake, a refused certificate after it are tls (A9 A10 A14)" {
	local mode port
	for mode in alert close refuse; do
		tls_peer "$mode" "$mode" tickets=0
		port=${mode}_port
		opaque bare "${!port}" "" hello 0 read 1
		run cat "$dir/opaque.out"
		assert_line --index -1 1
	done
	shim_part
	for mode in alert close refuse; do
		port=${mode}_port
		opaque under "${!port}" breaker=on hello 0 read 1
		assert_equal "$mode: $(tally "${!port}")" "$mode: 1 failure tls 1"
	done
}

@test "from outside: where h2 was offered many calls may be under way: no limits after the handshake (A10)" {
	tls_peer hung hang version=1.3
	shim_part
	opaque under "$hung_port" 'answer_timeout=200ms;deadline=400ms;abandon_after=1m' hello 1 ask wait 900
	went_well
	assert_equal "$(tally "$hung_port" | tr -dc '[:alpha:] ')" " neutral"
}

@test "in TLS a kept connection idle for three limits is well, its octets arrive as they were sent, and each request is a call (A7 A9 E1)" {
	tls_peer server answer
	set='answer_timeout=300ms;stall_timeout=300ms;deadline=400ms' both "$server_port" "$certificate" <<-'END'
		import hashlib, ssl
		context = ssl.create_default_context(cafile=sys.argv[2])
		s = context.wrap_socket(dial(), server_hostname="localhost")
		assert get(s) == (200, b"ok\n")
		time.sleep(1.3)
		assert get(s) == (200, b"ok\n")
		s.close()
		echo = context.wrap_socket(dial(), server_hostname="localhost")
		sent, got = hashlib.sha256(), hashlib.sha256()
		for i in range(40):
		    octets = os.urandom(1 + i * 997)
		    echo.sendall(b"\0" + octets)
		    sent.update(b"\0" + octets)
		    left = len(octets) + 1
		    while left:
		        piece = echo.recv(left)
		        assert piece
		        got.update(piece)
		        left -= len(piece)
		assert sent.digest() == got.digest()
		echo.close()
	END
	run tally "$server_port"
	refute_output --partial failure
	assert_output --regexp '^[0-9]+ success$'
}

@test "in TLS a new request on a kept connection meets an open circuit: ECONNRESET by the library's own send (B20)" {
	tls_peer server answer
	both "$server_port" "$certificate" <<-'END'
		import ssl
		context = ssl.create_default_context(cafile=sys.argv[2])
		s = context.wrap_socket(dial(), server_hostname="localhost")
		assert get(s) == (200, b"ok\n")
		resil("force", "127.0.0.1:%d" % port, "open", "--forever")
		if is_guarded:
		    try:
		        assert not get(s)
		    except OSError:  # Python 3.11 says EOF for a reset in a write
		        pass
		    assert error_of(dial) == "ECONNREFUSED"
		else:
		    assert get(s) == (200, b"ok\n")
	END
}

@test "one TLS object, a second connection: what it says there is not the first one's, which is in the midst of an answer (A9 A2)" {
	serves server <<-END
		import ssl
		context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
		context.load_cert_chain("$certificate")
		def serve(c):
		    c = context.wrap_socket(c, server_side=True)
		    while True:
		        octet = c.recv(1)
		        if not octet:
		            return
		        if octet == b"f":
		            c.sendall(b"1")
		            c.sendall(b"2")
		        elif octet == b"d":
		            while True:
		                c.sendall(b".")
		                time.sleep(0.02)
		        elif octet != b"n":
		            c.sendall(octet)
	END
	shim_part
	RESIL_SET='answer_timeout=400ms;deadline=800ms;failure_threshold=9' run under "$bin/tls_again" "$server_port" 900
	assert_output "none: -1 ETIMEDOUT
some: -1 ETIMEDOUT"
	assert_equal "$(tally "$server_port")" "4 success 2 failure answer_timeout 1 deadline 1"
}

# A proxy that takes CONNECT; what it was asked for is in $dir/proxy.out. proxy_port.
tunnels_start() {
	serves proxy <<-'END'
		def serve(c):
		    host, port = head(c).split(b" ")[1].split(b":")
		    far = socket.create_connection((host.decode(), int(port)))
		    c.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
		    say("tunnel")
		    ends = {c: far, far: c}
		    while True:
		        for s in select.select([c, far], [], [])[0]:
		            b = s.recv(65536)
		            if not b:
		                for s in ends:
		                    s.shutdown(socket.SHUT_RDWR)
		                return
		            ends[s].sendall(b)
	END
}
by_proxy() { "$1" curl -sS --http1.1 --cacert "$certificate" -x "http://127.0.0.1:$proxy_port" "$2" 2>&1; }

@test "TLS behind CONNECT: the call goes on in the tunnel, is bounded there, and has its verdict by what is inside (A12 A1 A9)" {
	tunnels_start
	tls_peer server answer
	tls_peer hung hang
	tls_peer away unavailable
	assert_equal "$(by_proxy bare "https://localhost:$server_port/")" ok
	shim_part
	export RESIL_SET='answer_timeout=600ms;failure_threshold=3;recovery_timeout=5m;recovery_max=5m'
	run under curl -sS --http1.1 --cacert "$certificate" -x "http://127.0.0.1:$proxy_port" "https://localhost:$server_port/"{1,2,3}
	assert_output $'ok\nok\nok'
	assert_equal "$(tally "$proxy_port")" "3 success"
	run by_proxy under "https://localhost:$away_port/"
	assert_output unavailable
	assert_equal "$(tally "$proxy_port")" "3 success 1 failure http_gateway 1"
	for again in 1 2; do
		run by_proxy under "https://localhost:$hung_port/"
		assert_failure
	done
	assert_equal "$(tally "$proxy_port")" "3 success 3 failure answer_timeout 2 http_gateway 1"
	assert_equal "$(destination "127.0.0.1:$proxy_port" state)" open
}
