# Lines to a collector that is away, and what has become of them: a log shipper that counts a connection's lines as delivered once its end is
# acknowledged, and sends them again on a further one where that fails.
#   spool_lines.py write PORT NAME CONNECTIONS LINES ACKNOWLEDGED    a line in ACKNOWLEDGED a connection; goes on where an earlier run stopped
#   spool_lines.py collect PORT DIRECTORY                            a file there a connection; says "up PORT" and "took N"
#   spool_lines.py compare DIRECTORY LINES REPEATS ACKNOWLEDGED...   each acknowledged one whole and in order, at most REPEATS twice
import collections
import os
import socket
import sys
import time


def write(port, name, connections, lines, acknowledged):
    done = sum(1 for _ in open(acknowledged)) if os.path.exists(acknowledged) else 0
    attempt = 0
    with open(acknowledged, "a", buffering=1) as acks:
        while done < int(connections):
            number = "%s-%d.%d.%d" % (name, done, os.getpid(), attempt)
            attempt += 1
            try:
                with socket.create_connection(("127.0.0.1", int(port))) as s:
                    for i in range(int(lines)):
                        s.sendall(b"%s %05d %s\n" % (number.encode(), i, b"x" * 60))
                    s.shutdown(socket.SHUT_WR)
                    assert s.recv(1) == b""
            except OSError:
                time.sleep(0.02)
                continue
            acks.write(number + "\n")
            done += 1
            time.sleep(0.15)  # so that it can be killed in the midst of them


def collect(port, directory):
    listener = socket.create_server(("127.0.0.1", int(port)), backlog=100)
    print("up", listener.getsockname()[1], flush=True)
    n = 0
    while True:
        connection = listener.accept()[0]
        n += 1
        with open(os.path.join(directory, str(n)), "wb") as f, connection:
            try:
                while octets := connection.recv(65536):
                    f.write(octets)
            except OSError:
                pass
        print("took", n, flush=True)
        time.sleep(0.03)  # so that whoever delivers can be met in the midst of it


def compare(directory, lines, repeats, *acknowledged):
    whole, seen = set(), collections.Counter()
    for name in os.listdir(directory):
        came = open(os.path.join(directory, name)).read().split("\n")[:-1]
        numbers = {line.split()[0] for line in came}
        assert len(numbers) <= 1, "lines of several connections in one: %s" % numbers
        assert [int(line.split()[1]) for line in came] == list(range(len(came))), "not in order: connection %s" % name
        for number in numbers:
            seen[number] += 1
            if len(came) == int(lines):
                whole.add(number)
    acks = [line.strip() for name in acknowledged for line in open(name)]
    lost = [number for number in acks if number not in whole]
    assert not lost, "%d acknowledged, lost: %s" % (len(acks), lost[:5])
    twice = [number for number, n in seen.items() if n > 1]
    assert sum(n - 1 for n in seen.values()) <= int(repeats), "came again: %s" % twice
    print(len(acks) * int(lines), "lines acknowledged and there;", len(seen) - len(acks), "connections more;", len(twice), "came again")


{"write": write, "collect": collect, "compare": compare}[sys.argv[1]](*sys.argv[2:])
