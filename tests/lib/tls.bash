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
	printf -v "${name}_port" %s "$(sed -n "s/^$mode //p" "$dir/$name.log")"
}

faulty() { tls_peer "$1" "$2" ${peer_words[@]+"${peer_words[@]}"}; }
