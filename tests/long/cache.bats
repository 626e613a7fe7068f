#!/usr/bin/env bats
# Answers of a gigabyte pass by the cache: nothing of them is kept, in memory or on the disk (D5).
: "${TEST_TIMEOUT:=120}"
load ../lib/common
load ../lib/services
load ../lib/cache

# Its answers are a gigabyte of zeros: /length, /chunked, /until-close; /small is kept.
giant() {
	start giant bare python3 -u -c '
import http.server
piece, pieces = bytes(1 << 20), 1024
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(s):
        s.send_response(200)
        if s.path == "/small":
            s.send_header("Content-Length", "5"); s.end_headers(); s.wfile.write(b"small"); return
        if s.path == "/length": s.send_header("Content-Length", str(len(piece) * pieces))
        if s.path == "/chunked": s.send_header("Transfer-Encoding", "chunked")
        if s.path == "/until-close": s.send_header("Connection", "close"); s.close_connection = True
        s.end_headers()
        for _ in range(pieces):
            s.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if s.path == "/chunked" else piece)
        if s.path == "/chunked": s.wfile.write(b"0\r\n\r\n")
    def log_message(s, *a): pass
s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), H); print("up", s.server_port); s.serve_forever()'
	wait_until file_has '^up ' "$dir/giant.out"
	giant_port=$(sed -n 's/^up //p' "$dir/giant.out")
}
# most_kb HOW COMMAND...: the most memory that the command had.
most_kb() {
	local how=$1 preload=
	shift
	[ "$how" = bare ] || preload=$shim
	bare python3 -c '
import os, sys
pid = os.fork()
if pid == 0:
    if sys.argv[1]: os.environ["LD_PRELOAD"] = sys.argv[1]
    os.dup2(2, 1)
    os.execvp(sys.argv[2], sys.argv[2:])
_, status, usage = os.wait4(pid, 0)
print(usage.ru_maxrss, os.waitstatus_to_exitcode(status))' "$preload" "$@"
}

@test "a gigabyte by its length, in chunks and until the connection closes: whole, not kept; memory and disk stay flat (D5)" {
	giant
	local url=http://127.0.0.1:$giant_port path bare_kb kb code
	read -r bare_kb code < <(most_kb bare curl -sS -o /dev/null "$url/small")
	assert_equal "$code" 0
	shim_part
	export RESIL_SET="fallback=cache(1h);failure_threshold=1;recovery_timeout=10m;recovery_max=10m" RESIL_GROUP=app
	read -r kb code < <(most_kb under curl -sS -o /dev/null "$url/small")
	local small_kb=$kb before
	before=$(du -s --apparent-size "$dir/state" | cut -f1)
	for path in length chunked until-close; do
		read -r kb code < <(most_kb under curl -sS -o /dev/null -w '%{size_download}\n' "$url/$path" 2>"$dir/$path.size")
		echo "# $path: $(cat "$dir/$path.size") octets; $kb KB of memory at most, $small_kb KB for five octets, $bare_kb KB bare" >&3
		assert_equal "$code $(cat "$dir/$path.size")" "0 1073741824"
		[ "$kb" -le $((small_kb + 2048)) ] || fail "$kb KB, $small_kb KB for five octets"
	done
	assert_equal "$(ls "$dir/state/app.cache" | wc -l)" 1
	[ "$(du -s --apparent-size "$dir/state" | cut -f1)" -le "$before" ]
	kill -9 "$giant_pid"
	wait_until is_gone "$giant_pid"
	under curl -s "$url/small" >/dev/null || true
	assert_equal "$(under curl -sS "$url/small")" small
	for path in length chunked until-close; do
		assert_equal "$(under curl -sS -o /dev/null -w '%{http_code}' "$url/$path")" 504
	done
}

@test "four programs at once keep answers of the same and of other targets: whole ones are served, of as many writers as there were (D5)" {
	origin first
	shim_part
	export RESIL_SET="fallback=cache(1h);failure_threshold=1;recovery_timeout=10m;recovery_max=10m" RESIL_GROUP=app
	local url=http://127.0.0.1:$first_port i n
	for round in 1 2 3; do
		for i in 1 2 3 4; do start "many$i" under curl -sS --parallel --parallel-max 20 "$url/length/[100000-100100]" -o /dev/null; done
		for i in 1 2 3 4; do
			local pid=many${i}_pid
			wait "${!pid}"
		done
	done
	assert_equal "$(find "$dir/state/app.cache" -name '.*' -type f | wc -l)" 0
	n=$(ls "$dir/state/app.cache" | wc -l)
	[ "$n" -le 256 ]
	away
	# One after the other, over as many connections as it takes.
	under curl -sS -o /dev/null -w '%{size_download} %{http_code}\n' "$url/length/[100000-100100]" >"$dir/served"
	assert_equal "$(wc -l <"$dir/served")" 101
	run awk '$2 == 200 { n++; if ($1 != 99999 + NR) print "wrong:", NR, $0 } $2 != 200 && $0 != "0 504" { print "wrong:", NR, $0 } END { print n >= 90 ? "many" : n }' "$dir/served"
	assert_output many
}
