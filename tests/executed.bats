#!/usr/bin/env bats
# A connection that goes by way of a relay outlives its program: what the process becomes by exec goes on with it, as it would bare, and nobody sees
# who keeps it.
load lib/common
load lib/detour

setup() {
	common_setup
	shim=$build/detoured/libresil.so
	start echo bare python3 -u -c '
import socket, sys, threading
l = socket.create_server(("127.0.0.1", 0), backlog=64)
sys.stdout.write("port %d\n" % l.getsockname()[1])
def serve(c):
    n = 0
    try:
        while True:
            d = c.recv(65536)
            if not d: break
            if d.startswith(b"stay"):
                print("stays")
                threading.Event().wait()
            n += len(d)
            if not d.startswith(b"q"): c.sendall(d)
        print("ended", n)
    except OSError as e:
        print("failed", e)
    c.close()
while True:
    threading.Thread(target=serve, args=(l.accept()[0],)).start()
'
	wait_until says port 'port ' "$dir/echo.out"
}
teardown() {
	local pid
	# Who keeps a relay is no child of ours.
	for pid in $(keepers); do kill -9 "$pid"; done
	common_teardown
}

# Processes of this test that keep a relay.
keepers() {
	local comm pid
	for comm in /proc/[0-9]*/comm; do
		pid=${comm#/proc/} pid=${pid%/comm}
		{ [ "$(<"$comm")" = resil-relay ] && grep -qzxF "RESIL_STATE_DIR=$RESIL_STATE_DIR" "/proc/$pid/environ"; } 2>/dev/null || continue
		echo "$pid"
	done
}
no_keeper() { [ -z "$(keepers)" ]; }
one_keeper() { [[ $(keepers) =~ ^[0-9]+$ ]]; }

# same_over COMMAND...: says the same bare and by way of a relay, and leaves nobody behind.
same_over() {
	local expected
	expected=$(bare "$@") || fail "bare: $expected"
	[ -n "$expected" ]
	shim_part
	assert_equal "$(detoured "${words:-relay}" "$@")" "$expected"
	wait_until no_keeper
}
executes() { same_over python3 "$root/tests/programs/executes.py" "$1" "$port"; }

@test "bash connects and becomes another program, which talks on" {
	same_over bash -c "exec 3<>/dev/tcp/127.0.0.1/$port; echo one >&3; exec bash -c 'echo two >&3; exec head -n 2 <&3'"
}
@test "a download of three megabytes begins in bash and ends in cat, whole" {
	head -c 3000000 /dev/urandom >"$dir/file"
	start web bare python3 -u -m http.server --bind 127.0.0.1 --directory "$dir" 0
	wait_until file_has 'port [0-9]+' "$dir/web.out"
	local web
	web=$(sed -nE 's/.*port ([0-9]+) .*/\1/p' "$dir/web.out")
	same_over bash -c "exec 3<>/dev/tcp/127.0.0.1/$web; printf 'GET /file HTTP/1.0\r\n\r\n' >&3; exec cat <&3 | tail -c 3000000 | md5sum"
	same_over bash -c "{ exec 3<>/dev/tcp/127.0.0.1/$web; printf 'GET /file HTTP/1.0\r\n\r\n' >&3; exec cat <&3; } | tail -c 3000000 | md5sum"
	assert_equal "$(detoured relay bash -c "exec 3<>/dev/tcp/127.0.0.1/$web; printf 'GET /file HTTP/1.0\r\n\r\n' >&3; exec cat <&3" | tail -c 3000000 | md5sum)" "$(md5sum <"$dir/file")"
}
@test "perl on standard input and output, and socat, which becomes its program" {
	echo 'echo words; read -r x; echo "got $x" >&"$1"' >"$dir/next"
	same_over perl -MIO::Socket::INET -e '$^F = 99; $s = IO::Socket::INET->new("127.0.0.1:$ARGV[0]") or die; open($out, ">&", \*STDOUT);
		open(STDIN, "<&", $s); open(STDOUT, ">&", $s); exec("bash", $ARGV[1], fileno($out))' "$port" "$dir/next"
	same_over bash -c "exec socat TCP:127.0.0.1:$port 'EXEC:bash $dir/next 2,nofork' 2>&1"
}
@test "what waits in the next program sees no child of ours, and no signal" { executes strangers; }
@test "an exec that fails leaves all as it was, and nobody behind" { executes failing; }
@test "many connections at once, and exec on a thread beside others" { executes threads; }
@test "children that become other programs leave the connection with the parent (E3)" { executes children-exec; }
@test "a connect that is under way is completed for the next program" {
	words='relay hold=300' executes pending
}
@test "what was sent before arrives, though the next program does not have the connection" {
	bare python3 "$root/tests/programs/executes.py" closed "$port"
	wait_until file_has '^ended 500000$' "$dir/echo.out"
	shim_part
	detoured relay python3 "$root/tests/programs/executes.py" closed "$port"
	wait_until no_keeper
	assert_equal "$(grep -c '^ended 500000$' "$dir/echo.out")" 2
}
@test "a child that outlives its parent goes on with the parent's connection: exit, _exit, daemon (E4)" { executes orphaned; }
@test "a shell's job outlives the shell, with its connection" {
	same_over bash -c "exec 3<>/dev/tcp/127.0.0.1/$port; echo one >&3; (while kill -0 \$\$ 2>/dev/null; do :; done; echo two >&3; exec head -n 2 <&3) & exit"
}
@test "a full table, and a namespace whose first process would be ours: less is done, and the program goes on" {
	executes table-full
	executes other-pid-namespace
}
@test "it ends with the last who has the connection, though the server says nothing; its name is its own, and it holds nothing else" {
	shim_part
	export RESIL_TEST_DETOUR=relay
	start held under bash -c "exec 3<>/dev/tcp/127.0.0.1/$port; echo stay >&3; exec sleep 600"
	wait_until file_has '^stays$' "$dir/echo.out"
	wait_until one_keeper
	local pid
	pid=$(keepers)
	assert_equal "$(ps -o args= -p "$pid" | xargs)" resil-relay
	assert_equal "$(readlink "/proc/$pid/fd/0" "/proc/$pid/fd/1" "/proc/$pid/fd/2" | uniq)" /dev/null
	[ "$(awk '/^PPid/ { print $2 }' "/proc/$pid/status")" != "$held_pid" ] || fail "it is the program's child"
	kill -9 "$held_pid"
	wait_until no_keeper
}
