# A websocket server of one thread a connection: the handshake, then every text frame comes back. Says its port on stdout.
import base64
import hashlib
import socket
import struct
import threading

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def exactly(stream, n):
    data = stream.read(n)
    if len(data) < n:
        raise EOFError
    return data


def serve(connection):
    with connection, connection.makefile("rb") as stream:
        key = b""
        while (line := stream.readline().strip()) != b"":
            if line.lower().startswith(b"sec-websocket-key:"):
                key = line.split(b":", 1)[1].strip()
        accept = base64.b64encode(hashlib.sha1(key + GUID).digest())
        connection.sendall(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + accept + b"\r\n\r\n"
        )
        try:
            while True:
                first, length = exactly(stream, 2)
                mask = exactly(stream, 4)
                payload = bytes(b ^ mask[i % 4] for i, b in enumerate(exactly(stream, length & 0x7F)))
                connection.sendall(struct.pack("BB", first, len(payload)) + payload)
        except (EOFError, ConnectionError):
            pass


listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
