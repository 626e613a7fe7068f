# Requests on one kept connection, sent as sockets let one: asks.py HOW PORT TARGET...     prints what each came to, one a line
# HOW: crumbs (an octet a send), split (in the midst of the line), sendmsg (three pieces), nonblocking, pipeline (all at once)
import errno
import select
import socket
import sys

how, port, targets = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
s = None


def connected():
    global s
    s = socket.create_connection(("127.0.0.1", port))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def wait(writes):
    select.select([] if writes else [s], [s] if writes else [], [], 30)


def send(octets):
    while octets:
        if how == "nonblocking":
            wait(True)
        octets = octets[s.send(octets):]


def answer():
    got = b""
    while not got.endswith(b"ok\n"):
        if how == "nonblocking":
            wait(False)
        more = s.recv(1000 if how != "pipeline" else 1)
        if not more:
            return "end"
        got += more
    return got.split()[1].decode()


def ask(target):
    request = f"GET {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode()
    if how == "crumbs":
        for i in range(len(request)):
            send(request[i:i + 1])
    elif how == "split":
        send(request[:6])
        send(request[6:])
    elif how == "sendmsg":
        s.sendmsg([request[:2], request[2:9], request[9:]])
    else:
        send(request)


def told(target, what):
    try:
        print(target, what() or "sent")
    except OSError as e:
        print(target, errno.errorcode[e.errno])
        return False
    return True


connected()
if how == "nonblocking":
    s.setblocking(False)
if how == "pipeline":
    s.sendall(b"".join(f"GET {t} HTTP/1.1\r\nHost: a\r\n\r\n".encode() for t in targets))
    for t in targets:
        told(t, answer)
else:
    for t in targets:
        if not told(t, lambda: ask(t) or answer()):
            connected()
            s.setblocking(how != "nonblocking")
