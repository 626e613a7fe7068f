# A forwarder whose way back can be shut in the middle of an answer: valve.py UPSTREAM_PORT
# Lines on stdin: `open`, or `shut N`: of each connection N more octets of the server come through, then none (nothing ends either).
# Says on stdout `open PORT` at first, and each line once it is in force.
import asyncio
import sys

left = None  # octets a connection, None: all
connections = set()


class Connection:
    def __init__(self):
        self.left = left
        self.may_pass = asyncio.Event()

    def turn(self):
        self.left = left
        self.may_pass.set()


async def forward(reader, writer, connection):
    try:
        while True:
            most = 65536
            if connection and connection.left is not None:
                if connection.left == 0:
                    connection.may_pass.clear()
                    await connection.may_pass.wait()
                    continue
                most = min(most, connection.left)
            octets = await reader.read(most)
            if not octets:
                break
            if connection and connection.left is not None:
                if connection.left < len(octets):  # shut while we waited
                    octets, connection.left = octets[: connection.left], 0
                else:
                    connection.left -= len(octets)
            writer.write(octets)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


async def serve(reader, writer):
    try:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", int(sys.argv[1]))
    except OSError:
        writer.close()
        return
    connection = Connection()
    connections.add(connection)
    await asyncio.gather(forward(reader, up_writer, None), forward(up_reader, writer, connection))
    connections.discard(connection)


async def main():
    global left
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    print("open", port, flush=True)
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while line := await commands.readline():
        word, *count = line.decode().split()
        left = int(count[0]) if word == "shut" else None
        for connection in connections:
            connection.turn()
        print(word, port, flush=True)


asyncio.run(main())
