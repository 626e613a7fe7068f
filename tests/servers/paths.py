# An HTTP/1.1 server that answers by the path: /hang/... never, /bad... 503, all others 200 "ok\n", and keeps connections.
# usage: paths.py            prints its port, then a line a request, METHOD TARGET, as it has come whole
import socketserver
import sys
import threading

told = threading.Lock()


def tell(*words):
    with told:
        print(*words, flush=True)


class Peer(socketserver.StreamRequestHandler):
    def handle(self):
        try:
            while self.answer():
                pass
        except OSError:
            pass

    def answer(self):
        line = self.rfile.readline().decode()
        length = 0
        while (field := self.rfile.readline().decode().strip().lower()):
            if field.startswith("content-length:"):
                length = int(field.split(":")[1])
        if not line:
            return False
        self.rfile.read(length)
        method, target, _ = line.split()
        tell(method, target)
        if "/hang" in target:
            return self.rfile.read(1) != b""
        status = "503 Bad" if "/bad" in target else "200 OK"
        self.wfile.write(f"HTTP/1.1 {status}\r\nContent-Length: 3\r\n\r\n".encode() + (b"" if method == "HEAD" else b"ok\n"))
        return True


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = allow_reuse_address = True
    request_queue_size = 128


with Server((sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1", 0), Peer) as server:
    tell("port", server.server_address[1])
    server.serve_forever()
