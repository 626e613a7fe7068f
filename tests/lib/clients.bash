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
