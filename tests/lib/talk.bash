# Servers and clients of a few lines of python each, in the test that they are for. Load it after `lib/common`.

server_prelude='
import os, select, signal, socket, struct, sys, threading, time

def say(*words):  # a whole line at once: others read it while it grows
    os.write(1, (" ".join(map(str, words)) + "\n").encode())

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
# The programs that run without the shim are forks of one python a file (servers/nursery.py), which has read what they import.
setup_file() {
	nursery_start
}
teardown_file() {
	{ kill -9 -- "-$NURSERY" && wait "$NURSERY"; } 2>/dev/null || true
}
nursery_start() {
	[ -z "${NURSERY-}" ] || return 0
	mkfifo "$BATS_FILE_TMPDIR/nursery"
	# shellcheck disable=SC2086 # words
	python3 "$root/tests/servers/nursery.py" "$BATS_FILE_TMPDIR/nursery" "$$" \
		errno fcntl hashlib json select signal socket struct subprocess threading time traceback ${nursery_modules-} \
		>"$BATS_FILE_TMPDIR/nursery.out" 2>&1 </dev/null 3>&- 4>&- &
	export NURSERY=$!
	dir=$BATS_FILE_TMPDIR
	mkfifo "$dir/nap"
	wait_until nursery_is_up
	rm "$dir/nap"
}
nursery_is_up() {
	! is_gone "$NURSERY" || in_vain "no nursery: $(cat "$BATS_FILE_TMPDIR/nursery.out")" || return
	file_has ^ready "$BATS_FILE_TMPDIR/nursery.out"
}
# born NAME PROGRAM [ARGUMENT]...: it runs, with what is exported; NAME_pid. `output=as\ one`: errors go where the output goes.
born() {
	local name=$1 program=$2 variable
	shift 2
	{
		printf '%s\0' "${output_is-apart}" "PATH=$PATH" "HOME=$HOME"
		for variable in RESIL TEST_ALLOWANCE_MS TEST_LATE resil "${!RESIL_@}"; do
			[ -z "${!variable+is set}" ] || printf '%s=%s\0' "$variable" "${!variable}"
		done
		printf '%s\0' "" "$@" "$program"
	} >"$dir/$name.asked"
	: >"$dir/$name.born"
	echo "$dir $name" >"$BATS_FILE_TMPDIR/nursery"
	wait_until test -s "$dir/$name.born"
	read -r "${name}_pid" <"$dir/$name.born"
	local pid=${name}_pid
	started+=("${!pid}")
}
# python NAME [PROGRAM]...: a server of these lines, in the background.
python() {
	local name=$1
	shift
	if [ ${#via[@]} = 0 ]; then
		born "$name" "$*"
	else
		start "$name" bare python3 -u -c "$*"
	fi
}
# all_of VARIABLE: what stands on stdin.
all_of() { IFS= read -rd '' "$1" || true; }
# serves NAME: a server; python on stdin defines serve(c), which has each connection on a thread of its own. NAME_port; what it says is in
# $dir/NAME.out.
serves() {
	local code
	all_of code
	python "$1" "$server_prelude$code$server_main"
	server_is_there "$1"
}
server_is_there() {
	local pid=$1_pid
	wait_until has_a_port "$1" "${!pid}"
}
has_a_port() {
	! is_gone "$2" || in_vain "the server did not start: $(cat "$dir/$1.err")" || return
	says "$1_port" 'port ' "$dir/$1.out"
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

def late():  # on a crowded machine, it may be: the test runs again
    open(os.environ["TEST_LATE"], "w").close()

def in_time(limit_ms, f, *args):  # no limit of this length cuts it short; where it fails having waited for as long, the machine is late
    begin = ms()
    try:
        return f(*args)
    except (AssertionError, OSError):
        if ms() - begin >= limit_ms:
            late()
        raise

def met(begin, limit_ms):  # the limit came when it was due
    took, slack = ms() - begin, 20 + int(os.environ.get("TEST_ALLOWANCE_MS", 0))
    if took > limit_ms + slack:
        late()
    assert limit_ms - 1 <= took <= limit_ms + slack, "after %d ms in place of %d" % (took, limit_ms)

def resil(*words):  # the command, where we are guarded
    if is_guarded:
        env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
        return subprocess.run([os.environ["RESIL"], *words], env=env, check=True, stdout=subprocess.PIPE, text=True).stdout
'
# talks bare|under PORT [WORDS]: a client; python on stdin, run with these arguments. It fails where an assertion of it does.
talks() {
	local how=$1 code
	shift
	all_of code
	talk "$how" "$code" "$@"
}
talk() {
	local how=$1 code=$client_prelude$2 status=0
	shift 2
	export RESIL=$build/resil TEST_ALLOWANCE_MS
	if [ "$how" = bare ] && [ ${#via[@]} = 0 ]; then
		[ -p "$dir/talker.code" ] || mkfifo "$dir/talker.code"
		output_is='as one' born talker "$code" "$@"
		read -rt "$TEST_TIMEOUT" status <>"$dir/talker.code" || status='no code in time'
		[ ! -s "$dir/talker.out" ] || cat "$dir/talker.out"
	else
		"$how" python3 -c "$code" "$@" 2>&1 || status=$?
	fi
	[ "$status" = 0 ] || fail "the client, $how, ended with $status"
}
# both PORT [WORDS]: first bare, then under the shim with RESIL_SET=$set.
both() {
	local code
	all_of code
	talk bare "$code" "$@"
	shim_part
	export RESIL_SET=${set-}
	talk under "$code" "$@"
}

# What the calls of a port came to: "3 success 1 failure reset 1".
tally() { came_to "127.0.0.1:$1"; }

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
