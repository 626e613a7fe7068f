"""Kills the process that holds the probe, at random moments, again and again; each time another process must probe within a second.

usage: kill-probe.py ROUNDS SEED LIMIT_MS COMMAND...    COMMAND: a process that connects until it is admitted and then hangs
The circuit is open, its time is up, and SYNs to the destination are dropped. Run in a network namespace of its own: SYNs are counted by
its TCP counters. Says "ROUNDS rounds, the longest wait N ms".
"""
import os
import random
import signal
import subprocess
import sys
import time

rounds, seed, limit_ms = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
command = sys.argv[4:]
random.seed(seed)


def syns():
    with open("/proc/net/snmp") as f:
        rows = [line.split() for line in f if line.startswith("Tcp:")]
    return int(rows[1][rows[0].index("ActiveOpens")])


def start():
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.wait()


longest = 0.0
for n in range(rounds):
    # The one to be killed: before it is admitted, while it is, or long after.
    holder = start()
    time.sleep(random.choice((0.003, 0.012, 0.06)) * random.random())
    before = None
    waiter = start() if n % 2 else None  # in every other round someone already waits at the door
    kill(holder)
    before = syns()
    killed = time.monotonic()
    # With someone at the door: it may have been let in already, before we could count; it then hangs, and nobody else may pass.
    if waiter:
        time.sleep(0.15)
        kill(waiter)
        before = syns()
        killed = time.monotonic()
    waiter = start()
    while syns() == before:
        if time.monotonic() - killed > 5:
            kill(waiter)
            sys.exit("round %d (seed %d): nobody probed within 5 s" % (n, seed))
        time.sleep(0.001)
    longest = max(longest, time.monotonic() - killed)
    time.sleep(0.005 * random.random())
    if syns() != before + 1:
        kill(waiter)
        sys.exit("round %d (seed %d): %d SYNs where one probe is right" % (n, seed, syns() - before))
    kill(waiter)
print("%d rounds, the longest wait %d ms" % (rounds, longest * 1000))
if longest * 1000 > limit_ms:
    open(os.environ.get("TEST_LATE", os.devnull), "w").close()
    sys.exit("seed %d: %d ms is more than %d" % (seed, longest * 1000, limit_ms))
