"""A name server for the tests: answers as a zone file says, which is read anew at each question. UDP and TCP, port 53.

usage: dns.py ADDRESS ZONE      a line in ZONE: NAME HOW [ADDRESS]...; says "ready", then "query NAME TYPE udp|tcp" for each question
HOW: answer, never, late-MS, servfail, refused, nxdomain, truncated (the answer is to be had by TCP alone), drop-N (not the first N times)
"""
import ipaddress
import socket
import struct
import sys
import threading
import time

A, PTR, AAAA = 1, 12, 28
TYPES = {A: "A", PTR: "PTR", AAAA: "AAAA"}
address, zone = sys.argv[1:3]
asked = {}
lock = threading.Lock()


def say(*words):
    with lock:
        print(*words, flush=True)


def rule(name):
    with open(zone) as f:
        for line in f:
            words = line.split()
            if words and words[0] == name:
                return words[1], words[2:]
    return "nxdomain", []


def name_of(question):
    labels, at = [], 12
    while question[at]:
        n = question[at]
        labels.append(question[at + 1:at + 1 + n].decode("latin-1"))
        at += n + 1
    kind, = struct.unpack(">H", question[at + 1:at + 3])
    return ".".join(labels).lower(), kind, question[12:at + 5]


def record(kind, what):
    if kind == PTR:
        data = b"".join(bytes([len(l)]) + l.encode() for l in what.split(".")) + b"\0"
    else:
        data = ipaddress.ip_address(what).packed
    return b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 0, len(data)) + data


def answer(question, by):
    """The bytes to send, or None."""
    name, kind, asked_for = name_of(question)
    say("query", name, TYPES.get(kind, kind), by)
    how, addresses = rule(name)
    flags, records = 0x8180, []
    if how == "never":
        return None
    if how.startswith("drop-"):
        with lock:
            asked[name, kind] = asked.get((name, kind), 0) + 1
        if asked[name, kind] <= int(how[5:]):
            return None
    if how.startswith("late-"):
        time.sleep(int(how[5:]) / 1000)
    if how == "servfail":
        flags |= 2
    elif how == "refused":
        flags |= 5
    elif how == "nxdomain":
        flags |= 3
    elif how == "truncated" and by == "udp":
        flags |= 0x200
    elif kind == PTR:
        records = [record(PTR, a) for a in addresses]
    else:
        version = {A: 4, AAAA: 6}.get(kind)
        records = [record(kind, a) for a in addresses if ipaddress.ip_address(a).version == version]
    head = question[:2] + struct.pack(">HHHHH", flags, 1, len(records), 0, 0)
    return head + asked_for + b"".join(records)


def serve_udp(s, question, peer):
    a = answer(question, "udp")
    if a:
        s.sendto(a, peer)


def serve_tcp(c):
    with c:
        while True:
            head = c.recv(2, socket.MSG_WAITALL)
            if len(head) < 2:
                return
            a = answer(c.recv(struct.unpack(">H", head)[0], socket.MSG_WAITALL), "tcp")
            if a:
                c.sendall(struct.pack(">H", len(a)) + a)


def listen_tcp(s):
    while True:
        threading.Thread(target=serve_tcp, args=(s.accept()[0],), daemon=True).start()


udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind((address, 53))
tcp = socket.create_server((address, 53))
threading.Thread(target=listen_tcp, args=(tcp,), daemon=True).start()
say("ready")
while True:
    q, who = udp.recvfrom(4096)
    threading.Thread(target=serve_udp, args=(udp, q, who), daemon=True).start()
