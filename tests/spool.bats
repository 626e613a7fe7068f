#!/usr/bin/env bats
# What a program sends where its destination is away lies in a spool, and reaches it later, in order, at least once (D6).
load lib/common
load lib/detour
load lib/services

# A collector: what comes on each connection, and how it ended, in $dir/NAME.out, a line each: "OCTETS MD5 end|ERRNO".
collector() {
	start "$1" bare python3 -u -c '
import errno, hashlib, socket, sys, threading
def serve(c):
    all, how = b"", "end"
    try:
        while True:
            b = c.recv(65536)
            if not b: break
            all += b
    except OSError as e: how = errno.errorcode[e.errno]
    print(len(all), hashlib.md5(all).hexdigest(), how)
    c.close()
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("127.0.0.1", int(sys.argv[1]))); s.listen(100); print("up", s.getsockname()[1])
while True: serve(s.accept()[0])' "${2:-0}"
	wait_until file_has '^up ' "$dir/$1.out"
	printf -v "$1_port" %s "$(sed -n 's/^up //p' "$dir/$1.out")"
}
ship() { # FILE...: each over a connection of its own, its end waited for
	detoured "spool=$dir/spool" python3 -c '
import socket, sys
for path in sys.argv[2:]:
    s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    s.sendall(open(path, "rb").read()); s.shutdown(socket.SHUT_WR)
    assert s.recv(1) == b""; s.close()' "$port" "$@"
}

@test "three connections: kept while the destination is away, delivered whole and in order, and gone from the spool (D6)" {
	shim_part
	port=$(free_port)
	for i in 1 2 3; do head -c $((i * 700000)) /dev/urandom >"$dir/$i"; done
	ship "$dir/1" "$dir/2" "$dir/3"
	assert_equal "$(ls "$dir/spool" | wc -l)" 3
	run resil replay "$dir/spool"
	assert_failure 1
	assert_output --partial "127.0.0.1:$port: Connection refused; what is for it stays"
	assert_equal "$(ls "$dir/spool" | wc -l)" 3
	collector there "$port"
	run resil replay "$dir/spool"
	assert_success
	assert_equal "$(cut -f2,3 <<<"$output" | xargs)" "127.0.0.1:$port 700000 127.0.0.1:$port 1400000 127.0.0.1:$port 2100000"
	wait_until peer_lines 4
	assert_equal "$(tail -n 3 "$dir/there.out")" "$(for i in 1 2 3; do echo "$(stat -c %s "$dir/$i") $(md5sum <"$dir/$i" | cut -c1-32) end"; done)"
	assert_equal "$(ls "$dir/spool")" ""
	assert_equal "$(stat -c %a "$dir/spool")" 700
	run resil replay "$dir/spool"
	assert_success
	assert_output ""
}
peer_lines() { [ "$(wc -l <"$dir/there.out")" -ge "$1" ]; }

@test "killed in the midst: what was acknowledged is there, and is delivered; what is open is left alone (D6)" {
	shim_part
	port=$(free_port)
	# The socket's receive buffer is all that is not on the disk yet.
	RESIL_TEST_DETOUR="spool=$dir/spool" start writer under python3 -u -c '
import fcntl, socket, struct, sys, termios, time
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
for i in range(200): s.sendall(b"%06d\n" % i * 100)
print("sent"); time.sleep(100)' "$port"
	wait_until file_has sent "$dir/writer.out"
	run resil replay "$dir/spool"
	assert_failure 1
	assert_output --partial "its connection is still open; it stays"
	wait_until has_grown
	kill -9 "$writer_pid"
	wait_until is_gone "$writer_pid"
	collector there "$port"
	run resil replay "$dir/spool"
	assert_success
	wait_until peer_lines 2
	read -r octets _ how < <(tail -n 1 "$dir/there.out")
	assert_equal "$octets $how" "140000 end"
}
has_grown() { [ "$(stat -c %s "$dir"/spool/*)" -gt 140000 ]; }

@test "a full disk is an error to the program, before its connect or in its midst, and no loss (D6 E7)" {
	shim_part
	need_root "a small tmpfs"
	unshare -m true 2>/dev/null || skip "a mount namespace is not to be had here"
	mkdir "$dir/spool"
	via=(unshare -m)
	port=$(free_port)
	run "${via[@]}" bash -c 'mount -t tmpfs -o size=2m none "$1" && shift && exec "$@"' - "$dir/spool" \
		timeout 30 env LD_PRELOAD="$shim" RESIL_TEST_DETOUR="spool=$dir/spool" python3 -c '
import errno, os, socket, sys
def to(): return socket.create_connection(("127.0.0.1", int(sys.argv[1])))
s = to(); sent = 0
try:
    while sent < 20000000: sent += s.send(b"x" * 1000)
except OSError as e: print(errno.errorcode[e.errno] in ("ECONNRESET", "EPIPE"), 1000000 < sent < 20000000)
open(sys.argv[2] + "/fill", "wb", 0)
try:
    with open(sys.argv[2] + "/fill", "wb", 0) as f:
        while True: f.write(b"y" * 4096)
except OSError as e: print(errno.errorcode[e.errno])
try: to(); print("connected")
except OSError as e: print(errno.errorcode[e.errno])' "$port" "$dir/spool"
	assert_output "True True
ENOSPC
ENOSPC"
}

@test "a fork in the midst, and an exit: nothing is lost (D6 E4)" {
	shim_part
	port=$(free_port)
	detoured "spool=$dir/spool" python3 -c '
import os, socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
for i in range(20):
    s.sendall(b"%04d" % i * 1000)
    if i % 5 == 0:
        pid = os.fork()
        if pid == 0: os._exit(0)
        os.waitpid(pid, 0)
os._exit(0)' "$port"
	collector there "$port"
	run resil replay "$dir/spool" --to "127.0.0.1:$there_port"
	assert_success
	wait_until peer_lines 2
	assert_equal "$(tail -n 1 "$dir/there.out" | cut -d' ' -f1,3)" "80000 end"
}
@test "sent, and gone at once: exit waits for a disk that takes longer than a second (D6)" {
	shim_part
	port=$(free_port)
	for how in 's.close()' 'os._exit(0)'; do
		detoured "spool=$dir/spool" python3 -c '
import os, socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
s.sendall(b"0123456789" * 250000)
'"$how" "$port"
	done
	collector there "$port"
	run resil replay "$dir/spool" --to "127.0.0.1:$there_port"
	assert_success
	assert_equal "$(cut -f3 <<<"$output" | xargs)" "2500000 2500000"
}

@test "damaged files are passed over or cut where they are damaged; nothing crashes (E10)" {
	shim_part
	port=$(free_port)
	head -c 300000 /dev/urandom >"$dir/1"
	ship "$dir/1"
	cp "$dir"/spool/* "$dir/good"
	collector there "$port"
	local at
	printf garbage >"$dir/spool/00-garbage.spool"
	: >"$dir/spool/00-empty.spool"
	ln -s /etc/passwd "$dir/spool/00-link.spool"
	printf 'XXXX' | dd of="$(echo "$dir"/spool/1*.spool)" bs=1 seek=200000 conv=notrunc status=none
	run resil replay "$dir/spool"
	assert_failure 1
	assert_output --partial "00-garbage.spool: not a spooled connection"
	wait_until peer_lines 2
	read -r octets _ < <(tail -n 1 "$dir/there.out")
	[ "$octets" -gt 100000 ] && [ "$octets" -lt 200000 ]
	assert_equal "$(ls "$dir/spool" | xargs)" "00-empty.spool 00-garbage.spool 00-link.spool"
}
