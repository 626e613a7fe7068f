"""A process that connects and becomes another program, which goes on with the connection. usage: executes.py CASE PORT; PORT answers as echo
does, and closes when it is told the end."""
import ctypes
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading

HERE = os.path.abspath(__file__)
CASE, PORT = sys.argv[1], int(sys.argv[2])


def connected(inheritable=True):
    s = socket.create_connection(('127.0.0.1', PORT))
    s.set_inheritable(inheritable)
    return s


def echoed(s, words):
    s.sendall(words)
    got = b''
    while len(got) < len(words):
        more = s.recv(65536)
        if not more:
            break
        got += more
    return 'echoed' if got == words else 'got %r' % got


def go_on(s, what, program=sys.executable):
    sys.stdout.flush()
    os.execv(program, [program, HERE, 'next-' + what, str(PORT), str(s.fileno())])


def received():
    return socket.socket(fileno=int(sys.argv[3]))


def children():
    """Whom every kind of wait sees, and whether SIGCHLD has come: it is blocked."""
    said = ['SIGCHLD'] if signal.SIGCHLD in signal.sigpending() else []
    for options in (0, 0x40000000, 0x80000000 - (1 << 32)):
        try:
            said.append('child %r' % (os.waitpid(-1, os.WNOHANG | options),))
        except ChildProcessError:
            pass
    return said or 'no child'


def relays():
    """Processes that keep a relay for this test."""
    mark = b'RESIL_STATE_DIR=' + os.environ['RESIL_STATE_DIR'].encode() + b'\0'
    found = 0
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open('/proc/%s/comm' % pid) as comm, open('/proc/%s/environ' % pid, 'rb') as environ:
                found += comm.read() == 'resil-relay\n' and mark in environ.read()
        except OSError:
            pass
    return found


def strangers():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    s = connected()
    echoed(s, b'before')
    go_on(s, CASE)


def next_strangers():
    s = received()
    print(echoed(s, b'x' * 300000), children())


def failing():
    """An exec that fails leaves all as it was, a hundred times; then one that does not."""
    s = connected()
    for _ in range(100):
        try:
            os.execv('/nowhere', ['x'])
        except FileNotFoundError:
            pass
    print(echoed(s, b'after'), children(), relays())
    go_on(s, 'echo')


def next_echo():
    print(echoed(received(), b'y' * 100000))


def threads():
    """Several connections, one of another thread's that is in the midst of it, and exec on a thread."""
    kept = [connected() for _ in range(20)]
    busy = connected(False)

    def talk():
        while True:
            echoed(busy, b'z' * 1000)

    threading.Thread(target=talk, daemon=True).start()
    os.environ['KEPT'] = ' '.join(str(s.fileno()) for s in kept)
    threading.Thread(target=lambda: go_on(kept[0], 'many')).start()
    signal.pause()


def next_many():
    print([echoed(socket.socket(fileno=int(fd)), b'm' * 1000) for fd in os.environ['KEPT'].split()].count('echoed'))


def children_exec():
    """Children of each kind become other programs with the connection: it stays with the parent, and nothing is made."""
    s = connected()
    said = []
    for use_vfork in (True, False):
        subprocess._USE_VFORK = use_vfork
        said.append(subprocess.run([sys.executable, HERE, 'next-counted', str(PORT), str(s.fileno())], close_fds=False,
                                   stdout=subprocess.PIPE, text=True).stdout.strip())
    pid = os.posix_spawn(sys.executable, [sys.executable, HERE, 'next-counted', str(PORT), str(s.fileno())], os.environ)
    os.waitpid(pid, 0)
    pid = os.fork()
    if pid == 0:
        go_on(s, 'counted')
    os.waitpid(pid, 0)
    print(said, echoed(s, b'parent'))


def next_counted():
    print(echoed(received(), b'child'), relays(), flush=True)


def pending():
    """A connect that is under way."""
    s = socket.socket()
    s.setblocking(False)
    s.set_inheritable(True)
    s.connect_ex(('127.0.0.1', PORT))
    go_on(s, CASE)


def next_pending():
    s = received()
    select.select([], [s], [])
    s.setblocking(True)
    print(s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), echoed(s, b'p' * 1000))


def closed():
    """What was sent before arrives, though the next program does not have the connection."""
    s = connected(False)
    s.sendall(b'q' * 500000)
    os.execvp('true', ['true'])


def orphaned():
    """The process ends, and a child of its own goes on with the connection."""
    for how in ('_exit', 'exit', 'daemon'):
        said, tell = os.pipe()
        pid = os.fork()
        if pid == 0:
            s = connected(False)
            echoed(s, b'before')
            gone, held = os.pipe()
            if how == 'daemon':
                assert ctypes.CDLL(None).daemon(1, 1) == 0
            elif os.fork() > 0:
                os._exit(0) if how == '_exit' else sys.exit(0)
            os.close(held)
            os.read(gone, 1)
            os.write(tell, echoed(s, b'o' * 100000).encode())
            os._exit(0)
        os.close(tell)
        os.waitpid(pid, 0)
        print(how, os.read(said, 100), children())


def table_full():
    s = connected()
    spare = [os.open('/dev/null', os.O_RDONLY) for _ in range(16)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (spare[-1] + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    go_on(s, 'echo')


def other_pid_namespace():
    """The first child is the first process there: what comes to its end takes the namespace with it."""
    s = connected()
    if ctypes.CDLL(None, use_errno=True).unshare(0x20000000) != 0:
        print('not permitted')
        return
    go_on(s, 'first')


def next_first():
    if os.fork() == 0:
        print('first of its namespace:', os.getpid() == 1, flush=True)
        os._exit(0)
    os.wait()


globals()[CASE.replace('-', '_')]()
