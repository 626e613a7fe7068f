"""usage: rates.py up|down BYTES: so many bytes to, or from, a server of its own on 127.0.0.1 behind whatever faults there are: what was
sent is what came, and in how many seconds."""
import hashlib
import os
import socket
import sys
import threading
import time

WAY, N = sys.argv[1], int(sys.argv[2])
DATA = os.urandom(N)
listener = socket.create_server(("127.0.0.1", 0))
told = {}


def send(s):
    s.sendall(DATA)
    s.shutdown(socket.SHUT_WR)


def receive(s):
    got, h, first = 0, hashlib.sha256(), None
    while True:
        part = s.recv(65536)
        if not part:
            break
        got += len(part)
        h.update(part)
    told["got"], told["hash"], told["end"] = got, h.hexdigest(), time.monotonic()


def serve():
    s, _ = listener.accept()
    (receive if WAY == "up" else send)(s)


t = threading.Thread(target=serve)
t.start()
c = socket.create_connection(listener.getsockname())
begun = time.monotonic()
(send if WAY == "up" else receive)(c)
t.join()
right = told["got"] == N and told["hash"] == hashlib.sha256(DATA).hexdigest()
print("whole" if right else f"{told['got']} of {N}", f"{told['end'] - begun:.3f}")
