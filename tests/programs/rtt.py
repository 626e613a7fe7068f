"""usage: rtt.py PORT N: N requests one after another on a kept connection of asyncio's; their mean in ms, and the share of a processor in
percent."""
import asyncio
import sys
import time

PORT, N = int(sys.argv[1]), int(sys.argv[2])


async def main():
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT)

    async def ask():
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        await reader.readexactly(length)

    await ask()
    begun, cpu = time.monotonic(), time.process_time()
    for _ in range(N):
        await ask()
    took = time.monotonic() - begun
    print(f"{took * 1000 / N:.1f} {(time.process_time() - cpu) / took * 100:.1f}")
    writer.close()


asyncio.run(main())
