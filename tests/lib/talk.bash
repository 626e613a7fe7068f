# Servers and clients of a few lines of python each, in the test that they are for. Load it after `lib/common`.

server_prelude='
import os, select, signal, socket, struct, sys, threading, time

def say(*words):
    print(*words, flush=True)

def reset(c):
    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    c.close()

def head(c):  # of the next HTTP request; empty at the end
    b = b""
    while not b.endswith(b"\r\n\r\n"):
        o = c.recv(1)
        if not o:
            return b""
        b += o
    return b

def ok(c, body=b"ok\n", status="200 OK", extra=""):
    c.sendall(("HTTP/1.1 %s\r\nContent-Length: %d\r\n%s\r\n" % (status, len(body), extra)).encode() + body)

def hold(c):  # until the client ends it; how it did so
    try:
        while c.recv(65536):
            pass
        say("ended")
    except ConnectionResetError:
        say("reset")

def run(c):
    try:
        serve(c)
    except OSError as e:
        say("error", e.strerror)
    c.close()
'
server_main='
listener = socket.create_server(("127.0.0.1", 0), backlog=256)
say("port", listener.getsockname()[1])
while True:
    c = listener.accept()[0]
    say("accepted")
    threading.Thread(target=run, args=(c,), daemon=True).start()
'
# serves NAME: a server; python on stdin defines serve(c), which has each connection on a thread of its own. NAME_port; what it says is in
# $dir/NAME.out.
serves() {
	start "$1" bare python3 -u -c "$server_prelude$(cat)$server_main"
	wait_until file_has '^port ' "$dir/$1.out"
	printf -v "$1_port" %s "$(sed -n 's/^port //p' "$dir/$1.out")"
}
# server_said NAME WORDS: how many lines of it are WORDS (an expression).
server_said() { grep -cxE "$2" "$dir/$1.out" || true; }

client_prelude='
import errno, fcntl, os, select, signal, socket, struct, subprocess, sys, threading, time
is_guarded = "libresil" in os.environ.get("LD_PRELOAD", "")
port = int(sys.argv[1])
GET = b"GET /%s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"

def dial(to=None):
    s = socket.socket()
    s.connect(("127.0.0.1", to or port))
    return s

def get(s, path="", method=b"GET"):  # the status and the body
    s.sendall(GET.replace(b"GET", method) % path.encode())
    return answer(s, method != b"HEAD")

def answer(s, has_body=True):
    b = b""
    while not b.endswith(b"\r\n\r\n"):
        o = s.recv(1)
        assert o, "an end after %r" % b
        b += o
    status = int(b.split()[1])
    length = [l.split(b":")[1] for l in b.split(b"\r\n") if l.lower().startswith(b"content-length")]
    body = b""
    while has_body and length and len(body) < int(length[0]):
        o = s.recv(65536)
        assert o, "an end in the body"
        body += o
    return status, body

def ms():
    return time.monotonic_ns() // 1000000

def error_of(f, *args):  # its name; what it returned where it did not fail
    try:
        return f(*args)
    except OSError as e:
        return errno.errorcode[e.errno]

def readable(s, wait_ms):
    p = select.poll()
    p.register(s, select.POLLIN)
    return p.poll(wait_ms)

def so_error(s):
    return s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)

def met(begin, limit_ms):  # the limit came when it was due
    took, slack = ms() - begin, 20 + int(os.environ.get("TEST_ALLOWANCE_MS", 0))
    assert limit_ms - 1 <= took <= limit_ms + slack, "after %d ms in place of %d" % (took, limit_ms)

def resil(*words):  # the command, where we are guarded
    if is_guarded:
        env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
        return subprocess.run([os.environ["RESIL"], *words], env=env, check=True, stdout=subprocess.PIPE, text=True).stdout
'
# talks bare|under PORT [WORDS]: a client; python on stdin, run with these arguments. It fails where an assertion of it does.
talks() {
	local how=$1
	shift
	RESIL=$build/resil TEST_ALLOWANCE_MS=$TEST_ALLOWANCE_MS "$how" python3 -c "$client_prelude$(cat)" "$@" 2>&1 || fail "the client, $how, ended with $?"
}
# both PORT [WORDS]: first bare, then under the shim with RESIL_SET=$set.
both() {
	local code
	code=$(cat)
	talks bare "$@" <<<"$code"
	shim_part
	export RESIL_SET=${set-}
	talks under "$@" <<<"$code"
}

# What the calls of a port came to: "3 success 1 failure reset 1".
tally() {
	destination "127.0.0.1:$1" calls >"$dir/calls.json"
	destination "127.0.0.1:$1" failures >"$dir/failures.json"
	python3 - "$dir" <<-'END'
		import json, sys
		calls, failures = (json.load(open(sys.argv[1] + "/" + f)) for f in ("calls.json", "failures.json"))
		words = ["%d %s" % (calls[k], k) for k in ("success", "failure", "neutral", "rejected") if calls[k]]
		words += ["%s %d" % (k, n) for k, n in sorted(failures.items()) if n]
		print(*words)
	END
}

hung_server() {
	serves server <<-'END'
		def serve(c):
		    while True:
		        h = head(c)
		        if not h or b"/hang" in h:
		            hold(c)
		            return
		        ok(c)
	END
}
