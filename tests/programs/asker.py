"""Does as the lines of its stdin say, against 127.0.0.1:PORT, and prints an outcome a line: what it ended with (ok, or the errno's
name), and after how many milliseconds.

usage: asker.py PORT
lines: connect [N]     connects (N times, one line for all: outcomes with a comma between) and closes
       ask             a request of HTTP/1 on a connection of its own
       poll            the same, non-blocking, its connect awaited by poll and told by SO_ERROR
       threads N M     N threads connect M times each; how often each outcome came
       kept N          N requests on one connection; how long each took
"""
import collections
import errno
import select
import socket
import sys
import threading
import time

PORT = int(sys.argv[1])
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


def outcome(work):
    try:
        work()
        return "ok"
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e))


def whole_answer(s):
    data = b""
    while b"\r\n\r\n" not in data or len(data.split(b"\r\n\r\n", 1)[1]) < length(data):
        part = s.recv(65536)
        if not part:
            raise OSError(errno.ENODATA, "short")
        data += part
    return data


def length(data):
    for line in data.split(b"\r\n\r\n", 1)[0].split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            return int(line.split(b":")[1])
    return 0


def connect():
    socket.create_connection(("127.0.0.1", PORT)).close()


def ask():
    with socket.create_connection(("127.0.0.1", PORT)) as s:
        s.sendall(REQUEST)
        whole_answer(s)


def ask_by_poll():
    with socket.socket() as s:
        s.setblocking(False)
        err = s.connect_ex(("127.0.0.1", PORT))
        if err == errno.EINPROGRESS:
            p = select.poll()
            p.register(s, select.POLLOUT)
            p.poll()
            err = s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if err:
            raise OSError(err, "")
        s.setblocking(True)
        s.sendall(REQUEST)
        whole_answer(s)


def threads(count, times):
    found = collections.Counter()

    def work():
        mine = [outcome(connect) for _ in range(times)]
        found.update(mine)

    all_of_them = [threading.Thread(target=work) for _ in range(count)]
    for t in all_of_them:
        t.start()
    for t in all_of_them:
        t.join()
    return " ".join(f"{k}={v}" for k, v in sorted(found.items()))


def kept(count):
    times = []
    s = socket.create_connection(("127.0.0.1", PORT))
    for _ in range(count):
        begun = time.monotonic()
        s.sendall(REQUEST)
        whole_answer(s)
        times.append(str(int((time.monotonic() - begun) * 1000)))
    return " ".join(times)


for line in sys.stdin:
    words = line.split()
    begun = time.monotonic()
    if words[0] == "connect":
        said = ",".join(outcome(connect) for _ in range(int(words[1]) if len(words) > 1 else 1))
    elif words[0] == "ask":
        said = outcome(ask)
    elif words[0] == "poll":
        said = outcome(ask_by_poll)
    elif words[0] == "threads":
        said = threads(int(words[1]), int(words[2]))
    else:
        said = kept(int(words[1]))
    print(said, int((time.monotonic() - begun) * 1000), flush=True)
