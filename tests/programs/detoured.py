"""What a program sees of one connection, case by case: each prints a line that does not depend on ports or times, so that a run under a
detour can be compared with a bare one. usage: detoured.py CASE..."""
import asyncio, errno, os, select, socket, struct, sys, threading, time

LIMIT = 10


def name(e):
    return errno.errorcode.get(e, e)


class Server(threading.Thread):
    """One connection, served by a function in a thread of a process that is not under the shim's eye: accepted sockets never are."""

    def __init__(self, serve, family=socket.AF_INET):
        super().__init__(daemon=True)
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.socket.bind(('127.0.0.1' if family == socket.AF_INET else '::1', 0))
        self.socket.listen()
        self.port = self.socket.getsockname()[1]
        self.serve = serve
        self.said = []
        self.start()

    def run(self):
        c, self.peer = self.socket.accept()
        c.settimeout(LIMIT)
        try:
            self.serve(c, self.said)
        except OSError as e:
            self.said.append(name(e.errno))

    def heard(self):
        self.join(LIMIT)
        return self.said


def closed_port(family=socket.AF_INET):
    s = socket.socket(family)
    s.bind(('127.0.0.1' if family == socket.AF_INET else '::1', 0))
    return s.getsockname()[1]  # closed again on return


def read_all(s):
    out = bytearray()
    while True:
        b = s.recv(65536)
        if not b:
            return bytes(out)
        out += b


def echo(c, said):
    data = read_all(c)
    c.sendall(data)
    c.close()
    said.append(len(data))


def attempt(f):
    try:
        return f()
    except OSError as e:
        return name(e.errno)


def blocking():
    srv = Server(echo)
    s = socket.create_connection(('127.0.0.1', srv.port))
    peer = s.getpeername()
    local = s.getsockname()
    s.sendall(b'x' * 300000)
    s.shutdown(socket.SHUT_WR)
    got = len(read_all(s))
    return got, srv.heard(), peer == ('127.0.0.1', srv.port), local == srv.peer


def refused():
    s = socket.socket()
    first = attempt(lambda: s.connect(('127.0.0.1', closed_port())))
    left = s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    srv = Server(echo)
    s.connect(('127.0.0.1', srv.port))  # Linux lets a socket try again
    s.sendall(b'again')
    s.shutdown(socket.SHUT_WR)
    return first, left, read_all(s)


def events_of(flags):
    names = [('IN', select.EPOLLIN), ('OUT', select.EPOLLOUT), ('ERR', select.EPOLLERR), ('HUP', select.EPOLLHUP), ('RDHUP', select.EPOLLRDHUP)]
    return '|'.join(n for n, bit in names if flags & bit)


def registered_before(edge, port, family=socket.AF_INET, host='127.0.0.1'):
    ep = select.epoll()
    s = socket.socket(family)
    s.setblocking(False)
    ep.register(s, select.EPOLLIN | select.EPOLLOUT | (select.EPOLLET if edge else 0))
    ep.poll(0)  # what an unconnected socket tells
    r = s.connect_ex((host, port))
    seen = [events_of(f) for _, f in ep.poll(LIMIT)]
    more = ep.poll(0.05) if edge else []
    return s, ep, name(r), seen, [events_of(f) for _, f in more]


def epoll_connected(edge):
    srv = Server(echo)
    s, ep, r, seen, more = registered_before(edge, srv.port)
    err = s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    peer = s.getpeername() == ('127.0.0.1', srv.port)
    s.sendall(b'hello')
    s.shutdown(socket.SHUT_WR)
    got = b''
    while True:
        ep.poll(LIMIT)
        try:
            b = s.recv(100)
        except BlockingIOError:
            continue
        if not b:
            break
        got += b
    return r, seen, more, err, peer, got


def epoll_refused(edge):
    s, ep, r, seen, more = registered_before(edge, closed_port())
    return r, [f for f in seen if 'ERR' in f] != [], s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), s.getsockopt(
        socket.SOL_SOCKET, socket.SO_ERROR)


def connect_twice():
    """How ruby, redis-cli and haproxy learn it."""
    said = []
    for port in (Server(echo).port, closed_port()):
        s = socket.socket()
        s.setblocking(False)
        first = s.connect_ex(('127.0.0.1', port))
        select.select([], [s], [], LIMIT)
        said.append((name(first), name(s.connect_ex(('127.0.0.1', port)))))
    return said


def recv_of_refused():
    s = socket.socket()
    s.setblocking(False)
    s.connect_ex(('127.0.0.1', closed_port()))
    select.select([s], [], [], LIMIT)
    return attempt(lambda: s.recv(10))


def ipv6():
    srv = Server(echo, socket.AF_INET6)
    s = socket.create_connection(('::1', srv.port))
    peer = s.getpeername()
    s.sendall(b'six')
    s.shutdown(socket.SHUT_WR)
    return read_all(s), peer == ('::1', srv.port, 0, 0), s.getsockname() == srv.peer


def mapped():
    """As Java does it."""
    srv = Server(echo)
    s = socket.socket(socket.AF_INET6)
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    s.connect(('::ffff:127.0.0.1', srv.port))
    peer = s.getpeername()
    s.sendall(b'mapped')
    s.shutdown(socket.SHUT_WR)
    refused = socket.socket(socket.AF_INET6)
    return read_all(s), peer[0], peer[1] == srv.port, attempt(lambda: refused.connect(('::ffff:127.0.0.1', closed_port())))


def bound():
    srv = Server(echo)
    s = socket.socket()
    s.bind(('127.0.0.2', 0))
    s.connect(('127.0.0.1', srv.port))
    s.sendall(b'bound')
    s.shutdown(socket.SHUT_WR)
    return read_all(s), srv.peer[0], s.getsockname()[0]


def dupped():
    srv = Server(echo)
    s = socket.create_connection(('127.0.0.1', srv.port))
    t = s.dup()
    fd = os.dup2(s.fileno(), 200)
    u = socket.socket(fileno=fd)
    s.close()
    names = [x.getpeername() == ('127.0.0.1', srv.port) for x in (t, u)]
    t.close()
    u.sendall(b'dup')
    u.shutdown(socket.SHUT_WR)
    got = read_all(u)
    u.close()
    # The number is another socket's now.
    other = Server(echo)
    v = socket.socket()
    os.dup2(v.fileno(), 200)
    w = socket.socket(fileno=200)
    return names, got, attempt(lambda: w.getpeername())


def reset_by_server():
    def serve(c, said):
        c.recv(10)
        c.sendall(b'half')
        c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
        time.sleep(0.05)
        c.close()

    srv = Server(serve)
    s = socket.create_connection(('127.0.0.1', srv.port))
    s.sendall(b'go')
    srv.heard()
    time.sleep(0.05)
    return s.recv(100), attempt(lambda: s.recv(100)), attempt(lambda: s.recv(100))


def reset_by_app():
    def serve(c, said):
        c.sendall(b'hi')
        said.append(c.recv(2))
        said.append(attempt(lambda: c.recv(10)))

    srv = Server(serve)
    s = socket.create_connection(('127.0.0.1', srv.port))
    s.recv(2)
    s.sendall(b'ok')
    time.sleep(0.05)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    s.close()
    return srv.heard()


def half_closed_by_server():
    def serve(c, said):
        c.shutdown(socket.SHUT_WR)
        said.append(len(read_all(c)))

    srv = Server(serve)
    s = socket.create_connection(('127.0.0.1', srv.port))
    end = s.recv(10)
    s.sendall(b'y' * 500000)
    s.close()
    return end, srv.heard()


def large_both_ways():
    def serve(c, said):
        n = 0
        while n < 8000000:
            b = c.recv(65536)
            n += len(b)
            c.sendall(b)
        c.close()

    srv = Server(serve)
    s = socket.create_connection(('127.0.0.1', srv.port))
    data = os.urandom(8000000)
    t = threading.Thread(target=lambda: s.sendall(data))
    t.start()
    got = read_all(s)
    t.join()
    return got == data


def slow_reader():
    def serve(c, said):
        try:
            for _ in range(400):
                c.sendall(b'z' * 65536)
        finally:
            c.close()

    srv = Server(serve)
    s = socket.create_connection(('127.0.0.1', srv.port))
    time.sleep(0.1)
    return len(read_all(s))


def send_timeout():
    """A blocking connect with SO_SNDTIMEO is left pending, and may be waited for."""
    hung = socket.socket()
    hung.bind(('127.0.0.1', 0))
    hung.listen(0)
    fill = []
    for _ in range(3):
        f = socket.socket()
        f.setblocking(False)
        f.connect_ex(hung.getsockname())
        fill.append(f)
    time.sleep(0.05)
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack('ll', 0, 100000))
    begun = time.time()
    r = attempt(lambda: s.connect(hung.getsockname()))
    return r, 0.09 < time.time() - begun < LIMIT


def gather():
    async def one(port):
        r, w = await asyncio.open_connection('127.0.0.1', port)
        w.write(b'q' * 1000)
        w.write_eof()
        return len(await r.read())

    def serve(l):
        while True:
            c, _ = l.accept()
            threading.Thread(target=echo, args=(c, []), daemon=True).start()

    l = socket.socket()
    l.bind(('127.0.0.1', 0))
    l.listen(100)
    threading.Thread(target=serve, args=(l,), daemon=True).start()

    async def all():
        got = await asyncio.gather(*[one(l.getsockname()[1]) for _ in range(40)])
        try:
            await one(closed_port())
        except OSError as e:
            got.append(name(e.errno))
        return got

    return asyncio.run(all())


def forked():
    """The parent's relays go on over a fork; a child that uses the connection is served by the parent."""
    srv = Server(echo)
    s = socket.create_connection(('127.0.0.1', srv.port))
    s.sendall(b'before ')
    for i in range(5):
        pid = os.fork()
        if pid == 0:
            s.sendall(b'child%d ' % i)
            peer = s.getpeername() == ('127.0.0.1', srv.port)
            os._exit(0 if peer else 1)
        if os.waitpid(pid, 0)[1] != 0:
            return 'child %d' % i
    s.sendall(b'after')
    s.shutdown(socket.SHUT_WR)
    return read_all(s)


def exits():
    """What was sent before exit arrives."""
    l = socket.socket()
    l.bind(('127.0.0.1', 0))
    l.listen()
    said = []
    for how in ('exit', '_exit'):
        r, w = os.pipe()
        pid = os.fork()
        if pid == 0:
            s = socket.create_connection(l.getsockname())
            s.sendall(b'e' * 700000)
            if how == '_exit':
                os._exit(0)
            sys.exit(0)
        c, _ = l.accept()
        said.append(len(read_all(c)))
        os.waitpid(pid, 0)
    return said


def closed_while_pending():
    """A pending connect that is given up leaves nothing behind, and no event."""
    said = []
    for how in ('close', 'again'):
        ep = select.epoll()
        hung = socket.socket()
        hung.bind(('127.0.0.1', 0))
        hung.listen(0)
        fill = [socket.socket() for _ in range(3)]
        for f in fill:
            f.setblocking(False)
            f.connect_ex(hung.getsockname())
        time.sleep(0.05)
        s = socket.socket()
        s.setblocking(False)
        r = s.connect_ex(hung.getsockname())
        ep.register(s, select.EPOLLIN | select.EPOLLOUT)
        time.sleep(0.02)
        said.append((name(r), len(ep.poll(0))))
        s.close()
        time.sleep(0.02)
        said.append(len(ep.poll(0)))
    return said


def many():
    """More than there is room for: those beyond go without."""
    l = socket.socket()
    l.bind(('127.0.0.1', 0))
    l.listen(1000)
    a, b = [], []
    for _ in range(400):
        s = socket.create_connection(l.getsockname())
        c, _ = l.accept()
        a.append(s)
        b.append(c)
    for i, s in enumerate(a):
        s.sendall(b'%d' % i)
    got = [c.recv(10) for c in b]
    return got == [b'%d' % i for i in range(400)], all(s.getpeername() == l.getsockname() for s in a)


def witness():
    """What the kernel itself says of the peer: syscall(2) with this number passes no hook of ours."""
    import ctypes
    srv = Server(echo)
    s = socket.create_connection(('127.0.0.1', srv.port))
    name, size = ctypes.create_string_buffer(16), ctypes.c_uint32(16)
    number = {'x86_64': 52, 'aarch64': 205}[os.uname().machine]
    if ctypes.CDLL(None).syscall(number, s.fileno(), name, ctypes.byref(size)) != 0:
        return 'failed'
    return 'direct' if struct.unpack_from('!H', name.raw, 2)[0] == srv.port else 'detoured'


def threads():
    names = []
    for t in os.listdir('/proc/self/task'):
        try:
            names.append(open(f'/proc/self/task/{t}/comm').read().strip())
        except (FileNotFoundError, ProcessLookupError):
            pass  # it has ended meanwhile
    return sorted(names)


def quiet():
    """Ends by itself what it no longer needs; numbers that the program is given are as without a detour."""
    srv = Server(echo)
    s = socket.create_connection(('127.0.0.1', srv.port))
    first = os.open('/dev/null', os.O_RDONLY)
    assert first == max(s.fileno(), srv.socket.fileno()) + 1 or first < s.fileno(), first
    assert 'resil-detour' in threads()
    os.closerange(first, 4096)
    s.sendall(b'x')
    s.shutdown(socket.SHUT_WR)
    assert read_all(s) == b'x'
    s.close()
    end = time.time() + LIMIT
    while 'resil-detour' in threads():
        assert time.time() < end
        time.sleep(0.1)
    s = socket.create_connection(('127.0.0.1', Server(echo).port))
    assert 'resil-detour' in threads()
    return True


def to_blocking(port):
    return attempt(lambda: socket.create_connection(('127.0.0.1', int(port))) and 0)


def to_nonblocking(port):
    s = socket.socket()
    s.setblocking(False)
    s.connect_ex(('127.0.0.1', int(port)))
    select.select([], [s], [], LIMIT)
    return name(s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))


CASES = dict(blocking=blocking, refused=refused, epoll_connected=lambda: epoll_connected(False), epoll_edge=lambda: epoll_connected(True),
             epoll_refused=lambda: epoll_refused(False), epoll_edge_refused=lambda: epoll_refused(True), connect_twice=connect_twice,
             recv_of_refused=recv_of_refused, ipv6=ipv6, mapped=mapped, bound=bound, dupped=dupped, reset_by_server=reset_by_server,
             reset_by_app=reset_by_app, half_closed_by_server=half_closed_by_server, large_both_ways=large_both_ways, slow_reader=slow_reader,
             send_timeout=send_timeout, gather=gather, forked=forked, exits=exits, closed_while_pending=closed_while_pending, many=many, witness=witness, quiet=quiet)

if __name__ == '__main__':
    if len(sys.argv) == 3 and sys.argv[1].startswith('to_'):
        begun = time.monotonic()
        print({'to_blocking': to_blocking, 'to_nonblocking': to_nonblocking}[sys.argv[1]](sys.argv[2]), int((time.monotonic() - begun) * 1000))
        sys.exit()
    for case in sys.argv[1:] or CASES:
        socket.setdefaulttimeout(None)
        print(case, CASES[case](), flush=True)
