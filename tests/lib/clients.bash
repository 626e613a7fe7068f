# Programs as they are, each connecting once: `client NAME HOST PORT` sets `cmd`.
client() {
	local host=$2 port=$3
	case $1 in
	curl) cmd=(curl -sS "http://$host:$port/") ;;
	wget) cmd=(wget -nv -O- --tries=1 "http://$host:$port/") ;;
	urllib) cmd=(python3 -c 'import sys, urllib.request; urllib.request.urlopen("http://%s:%s/" % tuple(sys.argv[1:]))' "$host" "$port") ;;
	# asyncio words an error that connect() returns and one that it learns later differently; its kind and number are the same.
	asyncio) cmd=(python3 -c '
import asyncio, sys
try:
    asyncio.run(asyncio.open_connection(sys.argv[1], int(sys.argv[2])))
except OSError as e:
    sys.exit("%s %s" % (type(e).__name__, e.errno))' "$host" "$port") ;;
	node) cmd=(node -e 'require("http").get({host: process.argv[1], port: process.argv[2]}).on("error", e => { console.error(e.code, e.message); process.exit(1) })' "$host" "$port") ;;
	java) cmd=(java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -cp "$bin" Dial "$host" "$port") ;;
	psql) cmd=(psql -w -h "$host" -p "$port" -U nobody -c 'select 1' nowhere) ;;
	redis-cli) cmd=(redis-cli -h "$host" -p "$port" ping) ;;
	git) cmd=(git ls-remote "http://$host:$port/x.git") ;;
	ssh) cmd=(ssh -F /dev/null -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -p "$port" "nobody@$host" true) ;;
	php) cmd=(php -r '$s = @stream_socket_client("tcp://$argv[1]:$argv[2]", $errno, $message, 30); if (!$s) { echo "$errno $message\n"; exit(1); }' "$host" "$port") ;;
	ruby) cmd=(ruby -rsocket -e 'TCPSocket.new(ARGV[0], ARGV[1].to_i)' "$host" "$port") ;;
	perl) cmd=(perl -MIO::Socket::INET -e 'IO::Socket::INET->new(PeerAddr => $ARGV[0], PeerPort => $ARGV[1], Timeout => 30) or die "$!\n"' "$host" "$port") ;;
	nc) cmd=(nc -v -z "$host" "$port") ;;
	bash) cmd=(bash -c 'exec 3<>"/dev/tcp/$0/$1"' "$host" "$port") ;;
	*) fail "no such client: $1" ;;
	esac
}

# Programs as they are, each making one call, in TLS where `certificate` is set: `caller NAME HOST PORT [TIMES]` sets `cmd`, and `calls`: how many it makes (slow
# starters make TIMES at once). It ends with 0 only when the answer was whole and good, and
# with 3 when it takes a short body for a whole one. What repeats by itself is told not to, where it can be told: java's HttpURLConnection
# cannot, and repeats a GET whose answer broke before its head.
caller() {
	local host=$2 port=$3 times=${4:-1} programs=$root/tests/programs
	local tls=${certificate-} scheme=${certificate:+https} sslmode=${certificate:+require} trust=() curl=() wget=()
	calls=1
	if [ -n "$tls" ]; then
		trust=(-Djavax.net.ssl.trustStore="$tls.p12" -Djavax.net.ssl.trustStorePassword=changeit)
		curl=(--http1.1 --cacert "$tls") wget=(--ca-certificate="$tls")
	fi
	case $1 in
	curl) cmd=(curl -fsS ${curl[@]+"${curl[@]}"} "${scheme:-http}://$host:$port/") ;;
	wget) cmd=(wget -nv -O- --tries=1 ${wget[@]+"${wget[@]}"} "${scheme:-http}://$host:$port/") ;;
	urllib | http.client | asyncio | requests) cmd=(python3 "$programs/fetch.py" "$1" "$host" "$port" ${tls:+"$tls"}) ;;
	node) cmd=(node "$programs/fetch.js" "$host" "$port" ${tls:+"$tls"}) ;;
	HttpClient | HttpURLConnection)
		calls=$times
		cmd=(java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC ${trust[@]+"${trust[@]}"} -cp "$bin" Fetch "$1" "$host" "$port" "$times" ${scheme:+"$scheme"})
		;;
	php) cmd=(php -d default_socket_timeout=60 "$programs/fetch.php" "$host" "$port" ${tls:+"$tls"}) ;;
	ruby) cmd=(ruby "$programs/fetch.rb" "$host" "$port" ${tls:+"$tls"}) ;;
	perl) cmd=(perl "$programs/fetch.pl" "$host" "$port" ${tls:+"$tls"}) ;;
	# What git starts for it, itself: it outlives a git that is killed.
	git) cmd=(env GIT_SSL_NO_VERIFY=1 bash -c 'exec "$(git --exec-path)/git-remote-https" origin "$0" <<<list' "${scheme:-http}://$host:$port/x.git") ;;
	redis-cli) cmd=(redis-cli -e -h "$host" -p "$port" get x) ;;
	psql) cmd=(env PGSSLMODE="${sslmode:-disable}" PGGSSENCMODE=disable psql -w -h "$host" -p "$port" -U nobody -c 'select 1' nowhere) ;;
	# Of what it reads it makes nothing: good is a whole answer of 200.
	s_client)
		cmd=(bash -c '
			exec 3< <(printf "GET / HTTP/1.1\r\nHost: x\r\n\r\n"; exec sleep 60)
			exec 4< <(exec openssl s_client -quiet -verify_quiet -CAfile "$0" -connect "$1" <&3 2>/dev/null)
			asked=$!
			trap "kill $asked 2>/dev/null; exit 1" TERM
			code=1
			while read -r line <&4; do
				case $line in ok*) code=0; break ;; *" 503 "*) break ;; esac
			done
			kill "$asked" 2>/dev/null
			exit "$code"' "$tls" "$host:$port")
		;;
	stdio) cmd=("$bin/stdio_client" "$port") ;;
	io_uring) cmd=("$bin/uring_client" "$port") ;;
	*) fail "no such client: $1" ;;
	esac
}
