"""The cases of tests/heads/cache over sockets: a server that answers each request as its case says, and a client that sends them all.

usage: cache_heads.py serve FILE             prints "up PORT"
       cache_heads.py ask FILE PORT          sends each request; what comes is of no matter
       cache_heads.py compare FILE PORT      sends each again; says which were served, or not, otherwise than their case says, then how many are right
"""
import email.utils
import re
import socket
import sys
import threading
import time


def octets(text, number):
    text = text.replace("%N", str(number)).replace("%D", email.utils.formatdate(usegmt=True))
    text = text.replace("%H", email.utils.formatdate(time.time() - 1800, usegmt=True))
    text = re.sub(r"\{(\d+)\*(.)\}", lambda m: int(m[1]) * m[2], text)
    known = {"r": "\r", "n": "\n", "t": "\t", "\\": "\\"}
    return re.sub(r"\\x(..)|\\(.)", lambda m: chr(int(m[1], 16)) if m[1] else known[m[2]], text).encode("latin-1")


def read(path):
    cases = []
    for line in open(path):
        kind, _, rest = line.rstrip("\n").partition(" ")
        if kind in ("kept", "not"):
            cases.append({"name": rest, "is_kept": kind == "kept", "request": b"", "answer": b"", "serves": b""})
        elif kind in "<>+=" and kind:
            side = "request" if kind in ">+" else "answer"
            cases[-1][side] += octets(rest, len(cases)) + (b"\r\n" if kind in "<>" else b"")
        elif kind == "serves":
            cases[-1]["serves"] = rest.encode()
    return cases


def serve(cases):
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    print("up", listener.getsockname()[1], flush=True)

    def one(c):
        with c:
            got = b""
            while b"\r\n" not in got:
                got += c.recv(65536)
            case = cases[int(re.search(rb"[/:](\d+)[x ]", got[: got.index(b"\r\n") + 2])[1]) - 1]
            while len(got) < len(case["request"]):
                got += c.recv(65536)
            assert got == case["request"], (case["name"], got)
            c.sendall(case["answer"])
            c.shutdown(socket.SHUT_WR)
            while c.recv(65536):
                pass

    while True:
        threading.Thread(target=one, args=(listener.accept()[0],), daemon=True).start()


def ask(case, port):
    got = b""
    try:
        with socket.create_connection(("127.0.0.1", port)) as s:
            s.sendall(case["request"])
            s.shutdown(socket.SHUT_WR)
            while more := s.recv(65536):
                got += more
    except ConnectionError:
        pass
    return got


what, cases = sys.argv[1], read(sys.argv[2])
if what == "serve":
    serve(cases)
right = 0
for case in cases:
    said = ask(case, int(sys.argv[3]))
    if what == "ask":
        assert len(said) == len(case["answer"]), (case["name"], said)  # its dates are of another second
        continue
    head, _, body = said.partition(b"\r\n\r\n")
    is_served = head.startswith(b"HTTP/1.1 200 ") and b"\r\nX-Resil-Source: cache" in head and body == case["serves"]
    if is_served == case["is_kept"]:
        right += 1
    else:
        print(case["name"], said)
if what == "compare":
    print(right, "of", len(cases))
