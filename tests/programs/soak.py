# Clients that ask a server for a long time, whatever it does: soak.py PORT SECONDS THREADS TASKS
# THREADS ask by blocking sockets, TASKS in an event loop, each over a new connection a call. Nothing here has a limit of its own.
# At the end a line of JSON: calls, good (a whole answer below 400), and the longest call in ms.
import asyncio
import http.client
import json
import sys
import threading
import time

port, seconds, threads, tasks = (int(word) for word in sys.argv[1:5])
until = time.monotonic() + seconds
lock = threading.Lock()
told = {"calls": 0, "good": 0, "longest_ms": 0}
PAUSE = 0.05  # after an error: a rejected connect costs nothing, and a loop of them says nothing


def tell(begin, good):
    with lock:
        told["calls"] += 1
        told["good"] += good
        told["longest_ms"] = max(told["longest_ms"], round((time.monotonic() - begin) * 1000))


def blocking():
    while time.monotonic() < until:
        begin, good = time.monotonic(), False
        connection = http.client.HTTPConnection("127.0.0.1", port)
        try:
            connection.request("GET", "/blocking", headers={"Connection": "close"})
            answer = connection.getresponse()
            answer.read()
            good = answer.status < 400
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()
        tell(begin, good)
        if not good:
            time.sleep(PAUSE)


async def waiting():
    while time.monotonic() < until:
        begin, good, writer = time.monotonic(), False, None
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /waiting HTTP/1.1\r\nHost: soak\r\nConnection: close\r\n\r\n")
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(head.split("content-length:")[1].split()[0])
            await reader.readexactly(length)
            good = int(head.split()[1]) < 400
        except (OSError, EOFError, asyncio.IncompleteReadError):
            pass
        finally:
            if writer:
                writer.close()
        tell(begin, good)
        if not good:
            await asyncio.sleep(PAUSE)


async def all_tasks():
    await asyncio.gather(*(waiting() for _ in range(tasks)))


workers = [threading.Thread(target=blocking) for _ in range(threads)]
for worker in workers:
    worker.start()
asyncio.run(all_tasks())
for worker in workers:
    worker.join()
print(json.dumps(told), flush=True)
sys.stdin.read()  # lives on until it was looked at
