"""A connection seen from both ends: for each line of stdin one, to a server of its own on 127.0.0.1, by way of whatever faults there are;
then a line of what each end got: how many octets (prefix: they are the first of what was sent, else "wrong"), in which pieces (UNIT: the
greatest common divisor of their lengths, the last one aside; LONGEST), and what ended it (end, an errno's name, open: nothing within 5
seconds), after how many milliseconds from the connect.

    app OCTETS prefix UNIT:LONGEST END MS server OCTETS prefix UNIT:LONGEST END MS

lines: down N [stays|hole M]   the app asks, the server sends N octets and ends its side
       up N [stays|hole M]     the app sends them and ends its side, the server answers with two
  stays: the app, told the end, closes its side only when the server has been told one, or after 5 seconds
  hole M: M octets come, then nothing for 0.3 s: "silent" is printed first, and what then ends it is waited for"""
import errno
import math
import os
import socket
import sys
import threading
import time

ASK = b"ask\n"
listener = socket.create_server(("127.0.0.1", 0))


class End:
    def __init__(self, expected):
        self.expected, self.got, self.sizes, self.end, self.at = expected, b"", [], "open", 0.0
        self.is_over = threading.Event()

    def receive(self, s, until=None):
        """To the end of the stream, or until so many have come."""
        while until is None or len(self.got) < until:
            try:
                part = s.recv(1 << 20)
            except TimeoutError:
                return False
            except OSError as e:
                self.over(errno.errorcode[e.errno])
                return False
            if not part:
                self.over("end")
                return False
            self.got += part
            self.sizes.append(len(part))
        return True

    def over(self, how):
        self.end, self.at = how, time.monotonic()
        self.is_over.set()

    def said(self, begun):
        pieces = f"{math.gcd(*self.sizes[:-1])}:{max(self.sizes, default=0)}"
        right = "prefix" if self.expected.startswith(self.got) else "wrong"
        return f"{len(self.got)} {right} {pieces} {self.end} {round((self.at - begun) * 1000) if self.at else '-'}"


def send(s, data):
    """What the other end makes of it is told when receiving."""
    try:
        s.sendall(data)
        s.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def serve(way, data, end):
    s, _ = listener.accept()
    with s:
        s.settimeout(20)
        if way == "up":
            end.receive(s)
            send(s, b"ok")
        elif end.receive(s, len(ASK)):
            send(s, data)
            end.receive(s)
        end.is_over.set()


def one(way, n, stays, hole):
    data = os.urandom(n)
    app, server = End(data if way == "down" else b"ok"), End(ASK + data if way == "up" else ASK)
    t = threading.Thread(target=serve, args=(way, data, server), daemon=True)
    t.start()
    begun = time.monotonic()
    with socket.create_connection(listener.getsockname()) as s:
        s.settimeout(5)
        if way == "up":
            send(s, ASK + data)
        else:
            s.sendall(ASK)
        if hole is not None and (hole == 0 or app.receive(s, hole)):
            s.settimeout(0.3)
            if not app.receive(s, hole + 1) and app.end == "open":
                print("silent", flush=True)
            s.settimeout(20)
        app.receive(s)
        if stays:
            server.is_over.wait(5)
        elif app.end == "open":
            server.end = "open"
        server_said = server.said(begun) if stays and server.end == "open" else None
    server.is_over.wait(5)
    print("app", app.said(begun), "server", server_said or server.said(begun), flush=True)
    t.join(5)


for line in sys.stdin:
    words = line.split()
    hole = int(words[3]) if words[2:3] == ["hole"] else None
    one(words[0], int(words[1]), words[2:3] == ["stays"], hole)
