# Uses a kept connection, leaves it idle, and uses it again: idle.py http|websocket PORT SECONDS
import base64
import hashlib
import http.client
import os
import socket
import sys
import time

kind, port, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])


def over_http():
    connection = http.client.HTTPConnection("127.0.0.1", port)

    def get():
        connection.request("GET", "/")
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200 and body, (answer.status, body)
        return connection.sock.getsockname()

    first = get()
    time.sleep(seconds)
    assert get() == first, "not the same connection"


def over_websocket():
    key = base64.b64encode(os.urandom(16))
    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rb") as stream:
        connection.sendall(
            b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
            + key
            + b"\r\n\r\n"
        )
        assert b" 101 " in stream.readline()
        accept = b""
        while (line := stream.readline().strip()) != b"":
            if line.lower().startswith(b"sec-websocket-accept:"):
                accept = line.split(b":", 1)[1].strip()
        assert accept == base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())

        def echo(text):
            mask = os.urandom(4)
            connection.sendall(bytes([0x81, 0x80 | len(text)]) + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(text)))
            assert stream.read(2 + len(text)) == bytes([0x81, len(text)]) + text

        echo(b"before")
        time.sleep(seconds)
        echo(b"after")


over_http() if kind == "http" else over_websocket()
