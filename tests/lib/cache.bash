# What the tests of `cache(AGE)` share. Load it after lib/common and lib/services.

# A server whose answers are told by the target: /ok/..., /set-cookie, /private, /vary, /length/N, /chunked, /until-close, /count, /status/N.
origin() { # NAME [PORT]
	start "$1" bare python3 -u -c '
import http.server, socketserver, sys
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    n = 0
    def do_GET(s):
        H.n += 1
        kind = s.path.split("/")[1]
        body = (s.path + " " + s.headers["Host"] + " " + s.headers.get("Accept-Language", "-")).encode()
        if kind == "length": body = b"x" * int(s.path.split("/")[2])
        s.send_response(int(s.path.split("/")[2]) if kind == "status" else 200)
        s.send_header("X-Kind", kind)
        if kind == "set-cookie": s.send_header("Set-Cookie", "a=b")
        if kind in ("private", "no-store", "no-cache", "must-revalidate"): s.send_header("Cache-Control", "max-age=5, " + kind.upper())
        if kind == "vary": s.send_header("Vary", "Accept-Language")
        if kind == "vary-all": s.send_header("Vary", "*")
        if kind == "old": s.send_header("Age", "3000")
        if kind == "chunked":
            s.send_header("Transfer-Encoding", "chunked"); s.end_headers()
            for b in (body[:5], body[5:]): s.wfile.write(b"%x\r\n%s\r\n" % (len(b), b))
            s.wfile.write(b"0\r\n\r\n"); return
        if kind == "until-close": s.send_header("Connection", "close"); s.close_connection = True
        elif kind == "cut": s.send_header("Content-Length", str(len(body) + 10)); s.close_connection = True
        else: s.send_header("Content-Length", str(len(body)))
        s.end_headers(); s.wfile.write(body)
    def do_POST(s):
        n = int(s.headers.get("Content-Length", 0))
        s.path += " posted %d" % len(s.rfile.read(n))
        s.do_GET()
    do_PUT = do_POST
    def log_message(s, *a): pass
class S(socketserver.ThreadingMixIn, http.server.HTTPServer): allow_reuse_address = True; daemon_threads = True
s = S(("127.0.0.1", int(sys.argv[1])), H); print("up", s.server_port); s.serve_forever()' "${2:-0}"
	wait_until file_has '^up ' "$dir/$1.out"
	printf -v "$1_port" %s "$(sed -n 's/^up //p' "$dir/$1.out")"
}
away() {
	kill -9 "$first_pid" 2>/dev/null || true
	wait_until is_gone "$first_pid"
	# The circuit opens, so that curl, which does not block, is served as well.
	under curl -s "http://127.0.0.1:$first_port/" >/dev/null || true
}
get() { under curl -sS "$@"; }
set_cache() { export RESIL_SET="fallback=cache($1);failure_threshold=1;recovery_timeout=1m;recovery_max=1m"; }
