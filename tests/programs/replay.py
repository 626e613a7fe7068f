"""Random histories against real sockets through the shim: calls, one after another, to a server that is there or not, and what a
plain model of the rules says of each. Times near an edge are not asked about.
usage: replay.py HISTORIES SEED [check]    under the shim, RESIL_SET as in model(); prints per port `PORT success failure rejected`"""
import errno, random, socket, sys, threading, time

RECOVERY, CAP, THRESHOLD, EDGE = 0.4, 1.6, 3, 0.12


class Server:
    def __init__(self):
        self.listener = None
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]

    def up(self):
        if self.listener is None:
            self.listener = socket.socket()
            self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.listener.bind(("127.0.0.1", self.port))
            self.listener.listen(16)
            threading.Thread(target=self.serve, args=(self.listener,), daemon=True).start()

    def down(self):
        if self.listener is not None:
            self.listener.shutdown(socket.SHUT_RDWR)
            self.listener.close()
            self.listener = None

    def serve(self, listener):
        while True:
            try:
                c, _ = listener.accept()
            except OSError:
                return
            with c:
                if c.recv(100):
                    c.sendall(b"ok")


class Model:
    """B10, B14: a streak opens; each failing probe doubles the wait, up to CAP."""

    def __init__(self):
        self.state, self.streak, self.wait, self.until = "closed", 0, RECOVERY, 0
        self.success = self.failure = self.rejected = 0
        self.health = 0

    def call(self, is_up, now):
        if self.state == "open" and now < self.until:
            self.rejected += 1
            return False
        probes = self.state == "open"
        if is_up:
            self.success += 1
            self.streak = 0
            if probes:
                self.state, self.health = "closed", now
            return True
        self.failure += 1
        self.streak += 1
        if probes:
            self.wait = min(self.wait * 2, CAP)
        elif self.streak < THRESHOLD:
            return False
        else:
            while self.wait > RECOVERY and now - self.health >= CAP:
                self.wait, self.health = max(RECOVERY, self.wait / 2), self.health + CAP
        self.state, self.streak, self.until = "open", 0, now + self.wait
        return False

    def is_at_an_edge(self, now):
        return (self.state == "open" and abs(now - self.until) < EDGE) or (
            self.state == "closed" and self.wait > RECOVERY and (now - self.health) % CAP < EDGE or (now - self.health) % CAP > CAP - EDGE)


def call(port):
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as s:
            s.sendall(b"hello")
            return s.recv(100) == b"ok"
    except OSError as e:
        assert e.errno == errno.ECONNREFUSED, e
        return False


def history(seed, told):
    rng, server, model, steps = random.Random(seed), Server(), Model(), []
    for _ in range(rng.randrange(6, 16)):
        is_up = rng.random() < 0.45
        (server.up if is_up else server.down)()
        time.sleep(rng.choice([0, 0, 0, 0.05, RECOVERY + EDGE * 2, CAP + EDGE * 2]))
        while model.is_at_an_edge(time.monotonic()):
            time.sleep(0.01)
        before = time.monotonic()
        opened = model.state
        is_good = call(server.port)
        after = time.monotonic()
        if after - before > EDGE / 2:
            told.append("%d late %d" % (server.port, seed))  # the machine is busy: nothing is said of it
            server.down()
            return
        expected = model.call(is_up, before)
        steps.append("%s %s: %s" % (opened, "up" if is_up else "down", "answered" if is_good else "refused"))
        if is_good != expected:
            told.append("%d WRONG seed %d: %s" % (server.port, seed, "; ".join(steps)))
            return
    server.down()
    told.append("%d %d %d %d" % (server.port, model.success, model.failure, model.rejected))


told = []
threads = [threading.Thread(target=history, args=(int(sys.argv[2]) + i, told)) for i in range(int(sys.argv[1]))]
for t in threads:
    t.start()
for t in threads:
    t.join()
print("\n".join(told))
