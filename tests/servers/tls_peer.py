"""A TLS server that behaves as it is told, as peer.c is without: the same words on stdout.
usage: tls_peer.py ADDRESS PORT MODE CERTIFICATE [NAME=VALUE...]      CERTIFICATE: chain and key in one file
MODE: hello         never answers the ClientHello
      hang          completes the handshake and then never says a word
      drip, half    an answer that promises more than what comes, in pieces or half of it
      cut, early    half of it, and then a reset, or an end without a word of TLS
      unavailable   HTTP 503 on a kept connection, PostgreSQL's FATAL
      answer        HTTP requests get 200 on a kept connection, all else an echo
      alert         a fatal alert in place of a ServerHello
      close         closes in place of one
      refuse        wants a certificate of the client's, and refuses it when there is none
NAME: version=1.2|1.3  alpn=h2,http/1.1  tickets=N  (of 1.3)  greet=TEXT (said first, inside)
A client that begins as PostgreSQL's does is led into TLS by an S."""
import os
import select
import socket
import ssl
import struct
import sys
import threading
import time

address, port, mode, certificate = sys.argv[1:5]
named = dict(word.split("=", 1) for word in sys.argv[5:])
lock = threading.Lock()


def say(*words):
    with lock:
        print(*words, flush=True)


context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate)
if mode == "refuse":
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(certificate)
if "version" in named:
    version = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}[named["version"]]
    context.minimum_version = context.maximum_version = version
if "alpn" in named:
    context.set_alpn_protocols(named["alpn"].split(","))
if "tickets" in named:
    context.num_tickets = int(named["tickets"])

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 100\r\n\r\n"
UNAVAILABLE = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 12\r\n\r\nunavailable\n"
STARTING = b"E\0\0\0\67SFATAL\0C57P03\0Mthe database system is starting up\0\0"
SSL_REQUEST = struct.pack("!II", 8, 80877103)


class Client:
    def __init__(self, s, peer):
        self.s, self.peer, self.begin = s, peer, time.monotonic()
        self.last_in = self.last_out = -1
        self.is_postgres = False

    def ms(self):
        return int((time.monotonic() - self.begin) * 1000)

    def send(self, octets):
        self.s.sendall(octets)
        self.last_out = self.ms()

    def linger(self):
        self.s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def request(self):
        b = b""
        while not b.endswith(b"\r\n\r\n"):
            octets = self.s.recv(65536)
            if not octets:
                raise EOFError
            self.last_in = self.ms()
            b += octets
            if self.is_postgres or b" HTTP/1." not in b:
                break
        return b

    def hold(self):  # until the client ends it
        while True:
            try:
                octets = self.s.recv(65536)
            except ssl.SSLError as e:
                if isinstance(e, ssl.SSLEOFError):
                    raise EOFError
                raise
            if not octets:
                raise EOFError

    def raw_hold(self):
        while self.s.recv(65536):
            pass
        raise EOFError

    def serve(self):
        self.s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.s.recv(8, socket.MSG_PEEK) == SSL_REQUEST:
            self.s.recv(8)
            self.is_postgres = True
            self.s.sendall(b"S")
        if mode in ("hello", "alert", "close"):
            if not self.s.recv(65536):
                raise EOFError
            self.last_in = self.ms()
            if mode == "hello":
                self.raw_hold()
            if mode == "alert":
                self.s.sendall(b"\x15\3\3\0\2\2\x28")
                self.s.shutdown(socket.SHUT_WR)
                self.raw_hold()
            return "peer"
        self.s = context.wrap_socket(self.s, server_side=True, do_handshake_on_connect=False)
        try:
            self.s.do_handshake()
        except ssl.SSLError as e:
            # What it has sent lies unread: a close at once would be a reset, which may overtake the alert.
            socket.socket.shutdown(self.s, socket.SHUT_WR)
            print(e, file=sys.stderr, flush=True)
            while os.read(self.s.fileno(), 65536):
                pass
            return "refused"
        if "greet" in named:
            self.send(named["greet"].encode() + b"\r\n")
        while True:
            words = self.request()
            if mode == "hang":
                self.hold()
            is_http = b" HTTP/1." in words
            if mode == "answer":
                body = words if not is_http else b"ok\n"
                self.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body) if is_http else body)
                continue
            if mode == "unavailable":
                self.send(STARTING if self.is_postgres else UNAVAILABLE)
                continue
            head = b"E\0\0\0\150" if self.is_postgres else HEAD
            if mode == "drip":
                if is_http:
                    self.send(head)
                left = b"" if is_http else head
                while True:
                    if select.select([self.s], [], [], 0.27)[0]:
                        self.hold()
                    self.send(left[:1] or b"x")
                    left = left[1:]
            self.send(head + b"x" * 50)
            if mode == "half":
                self.hold()
            time.sleep(0.02)  # what was sent has arrived by then
            if mode == "cut":
                self.linger()
            return "peer"

    def run(self):
        who = "peer"
        try:
            who = self.serve()
        except EOFError:
            who = "end"
        except ConnectionError:
            who = "reset"
        except ssl.SSLError as e:
            print(e, file=sys.stderr, flush=True)
            who = "end"
        except OSError:
            who = "end"
        say("closed", self.peer, self.ms(), self.last_in, self.last_out, who)
        self.s.close()


listener = socket.create_server((address, int(port)), backlog=256)
say(mode, listener.getsockname()[1])
while True:
    s, at = listener.accept()
    say("accepted", at[1])
    threading.Thread(target=Client(s, at[1]).run, daemon=True).start()
