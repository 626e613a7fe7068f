# One GET over a socket that is watched: steadfast.py HOST PORT blocking|nonblocking [4|6|v6only]
# Options are set and the socket is in an edge-triggered epoll set before its connect. Tells what the program sees of its socket: the number,
# the flags, every option that can be read, the events, the answer, the peer's address. What is told by two runs must be the same.
import fcntl
import os
import select
import socket
import struct
import sys

host, port, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
family = sys.argv[4] if len(sys.argv) > 4 else "4"
s = socket.socket(socket.AF_INET if family == "4" else socket.AF_INET6, socket.SOCK_STREAM)
if family == "v6only":
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 77)
s.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 54321)
s.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, 3)
s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3))
s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 25, 0))
os.set_inheritable(s.fileno(), True)
s.setblocking(how == "blocking")

# What is another from one connection to the next: counters, times, who served the interrupt, the peer.
VARIES = {
    socket.SOL_SOCKET: {27, 28, 29, 30, 49, 55, 56, 57},
    socket.IPPROTO_TCP: {11, 12, 24, 26, 43},
    socket.IPPROTO_IP: {14, 52},
    socket.IPPROTO_IPV6: {24},
}


def options():
    for level, names in VARIES.items():
        for name in range(1, 90):
            if name in names:
                continue
            try:
                yield level, name, s.getsockopt(level, name, 128).hex()
            except OSError as e:
                yield level, name, e.errno


def show(events):
    return "|".join(n for n in ("IN", "OUT", "RDHUP", "ERR", "HUP") if events & getattr(select, "EPOLL" + n))


print("number", s.fileno(), "flags", fcntl.fcntl(s, fcntl.F_GETFL), fcntl.fcntl(s, fcntl.F_GETFD))
for option in options():
    print("before", *option)
watch = select.epoll()
ALL = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET
watch.register(s, ALL)
print("unconnected", [show(e) for _, e in watch.poll(0)])
try:
    s.connect((host, port))
except BlockingIOError:
    pass
except OSError as e:
    sys.exit("connect: %s" % e.strerror)
print("connected", [show(e) for _, e in watch.poll(20)], "error", s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
for named in (s, s.dup()):
    if named.getpeername()[:2] != (host, port):
        sys.exit("the peer is %s" % (named.getpeername(),))
s.setblocking(True)
s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
seen = 0
while not seen & select.EPOLLIN:
    for _, e in watch.poll(20):
        seen |= e
print("answered", show(seen & (select.EPOLLIN | select.EPOLLERR | select.EPOLLHUP)))
print(s.recv(4096))
# To the peer's end, at which IPV6_ADDRFORM becomes another by itself.
while family != "4" and s.recv(4096):
    pass
s.setblocking(how == "blocking")
print("number", s.fileno(), "flags", fcntl.fcntl(s, fcntl.F_GETFL), fcntl.fcntl(s, fcntl.F_GETFD))
for option in options():
    print("after", *option)
