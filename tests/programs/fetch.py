# One GET by a library of Python's: fetch.py urllib|http.client|asyncio|requests HOST PORT [CERTIFICATE]     with one, in TLS
# Ends with 0 when a whole answer below 400 came, 1 when the library says that something is wrong, 3 when it hands on a short body as if
# it were whole.
import asyncio
import ssl
import sys

kind, host, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
trusted = sys.argv[4] if len(sys.argv) > 4 else None
context = ssl.create_default_context(cafile=trusted) if trusted else None
url = "%s://%s:%d/" % ("https" if trusted else "http", host, port)


def urllib():
    import urllib.request

    with urllib.request.urlopen(url, context=context) as answer:
        return answer.status, answer.headers.get("Content-Length"), answer.read()


def http_client():
    import http.client

    connection = http.client.HTTPSConnection(host, port, context=context) if trusted else http.client.HTTPConnection(host, port)
    connection.request("GET", "/")
    answer = connection.getresponse()
    return answer.status, answer.headers.get("Content-Length"), answer.read()


def requests():
    import requests

    answer = requests.get(url, verify=trusted)
    return answer.status_code, answer.headers.get("Content-Length"), answer.content


async def streams():
    reader, writer = await asyncio.open_connection(host, port, ssl=context)
    writer.write(b"GET / HTTP/1.1\r\nHost: %s\r\n\r\n" % host.encode())
    await writer.drain()
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    length = [line.split(":")[1] for line in head if line.lower().startswith("content-length:")][0]
    body = await reader.readexactly(int(length))
    writer.close()
    return int(head[0].split()[1]), length, body


try:
    status, length, body = {
        "urllib": urllib,
        "http.client": http_client,
        "requests": requests,
        "asyncio": lambda: asyncio.run(streams()),
    }[kind]()
except Exception as e:
    sys.exit("%s: %s" % (type(e).__name__, e))
if status >= 400:
    sys.exit("status %d" % status)
if len(body) != int(length):
    print("%d of %s octets, and no error" % (len(body), length), file=sys.stderr)
    sys.exit(3)
