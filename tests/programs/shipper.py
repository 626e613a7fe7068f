# Ships a line of a log every 100 ms for so long, to a server that never says a word: shipper.py PORT SECONDS
import socket
import sys
import time

with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
    end = time.monotonic() + float(sys.argv[2])
    n = 0
    while time.monotonic() < end:
        connection.sendall(b"<13>line %d\n" % n)
        n += 1
        time.sleep(0.1)
print(n)
