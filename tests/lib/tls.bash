# TLS in tests: a certificate, servers that behave as they are told inside of TLS (servers/tls_peer.py), and the table (table.bash) with them.
# Load it after `lib/table`.

# certificate: a chain and a key of 127.0.0.1 in one file, and for java beside it. Kept for the file's tests.
make_certificate() {
	certificate=$BATS_FILE_TMPDIR/certificate.pem
	[ ! -s "$certificate.p12" ] || return 0
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$certificate.key" -out "$certificate.crt" -days 30 \
		-subj /CN=localhost -addext subjectAltName=IP:127.0.0.1,DNS:localhost 2>/dev/null
	cat "$certificate.crt" "$certificate.key" >"$certificate"
	[ -z "${1-}" ] || keytool -importcert -noprompt -alias test -file "$certificate.crt" -keystore "$certificate.p12" -storepass changeit 2>/dev/null
}

# tls_peer NAME MODE [WORD=VALUE]...: its port in NAME_port; what it says in $dir/NAME.log.
tls_peer() {
	local name=$1 mode=$2
	shift 2
	${via[@]+"${via[@]}"} python3 "$root/tests/servers/tls_peer.py" 127.0.0.1 0 "$mode" "$certificate" "$@" >"$dir/$name.log" 2>"$dir/$name.err" 3>&- &
	started+=("$!")
	printf -v "${name}_pid" %s "$!"
	wait_until peer_is_up "$name" "$mode" "$!"
}

# The faults of table.bash inside TLS, and those of TLS itself. in, out: of plaintext octets, but `hello`'s.
faults() {
	cat <<-'END'
		hang         answer_timeout=600ms  600   in      answer_timeout
		hello        answer_timeout=600ms  600   in      answer_timeout
		drip         deadline=1s           1000  accept  deadline
		half         stall_timeout=600ms   600   out     stall_timeout
		cut          breaker=on            0     -       reset
		early        breaker=on            0     -       eof
		unavailable  breaker=on            0     -       http_gateway
		alert        breaker=on            0     -       tls
		close        breaker=on            0     -       tls
		refuse       breaker=on            0     -       tls
	END
}
# The server, a python, may note an octet so late.
peer_slack_ms=30
# As in table.bash. node and java bring a TLS of their own: seen from outside, and these servers send tickets.
exceptions() {
	cat <<-'END'
		php                drip         short   its streams end a body at a failed read, and tell nobody
		php                half         short   its streams end a body at a failed read, and tell nobody
		php                cut          short   its streams end a body at a failed read, and tell nobody
		php                early        short   its streams do not compare a body with its Content-Length
		requests           cut          short   Python 3.11 takes a reset inside TLS for an end of file, urllib3 1.26 does not count
		requests           early        short   urllib3 1.26 does not compare a body with its Content-Length
		HttpURLConnection  early        short   it does not compare a body with its Content-Length
		HttpURLConnection  early        closed  from outside an end after records is the end of an answer
		node               hang         hangs   a ticket may be an answer: a deadline ends it
		node               half         hangs   from outside silence may be the end of an answer
		node               cut          closed  from outside an end after records is the end of an answer
		node               early        closed  from outside an end after records is the end of an answer
		node               unavailable  closed  from outside an answer is an answer
		HttpClient         hang         hangs   a ticket may be an answer: a deadline ends it
		HttpClient         half         hangs   from outside silence may be the end of an answer
		HttpClient         cut          closed  from outside an end after records is the end of an answer
		HttpClient         early        closed  from outside an end after records is the end of an answer
		HttpClient         unavailable  closed  from outside an answer is an answer
		HttpURLConnection  hang         hangs   a ticket may be an answer: a deadline ends it
		HttpURLConnection  half         hangs   from outside silence may be the end of an answer
		HttpURLConnection  cut          closed  from outside an end after records is the end of an answer
		HttpURLConnection  unavailable  closed  from outside an answer is an answer
	END
}
table_head() { printf '# %-18s %-10s %-10s %-10s %-10s %-10s %-10s %-10s %-10s %-10s %s\n' client hang hello drip half cut early 503 alert close refuse >&3; }
faulty() { tls_peer "$1" "$2"; }
