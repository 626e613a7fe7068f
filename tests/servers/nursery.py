"""Python programs without python's start: this process has read the modules once, and each program is a fork of it. For what runs without the
shim only: a guarded program begins by its own exec, as everyone's does.

usage: nursery.py PIPE PID [MODULE]...     PIPE: a line each: FOLDER NAME; it ends with the process PID
Of FOLDER/NAME.asked: the environment's variables, the arguments, and the program, each ended by a zero octet, with an empty one between
the first two. The program has its output in NAME.out, its errors in NAME.err; NAME.born has its number, and once it has ended, where FOLDER/NAME.code
is a pipe, that gets its code (128 and the signal's number where one ended it).
"""
import importlib
import os
import select
import signal
import sys

for name in sys.argv[3:]:
    importlib.import_module(name)

pipe, keeper = sys.argv[1], os.pidfd_open(int(sys.argv[2]))
asked, own = os.open(pipe, os.O_RDWR), {}
ends, tell = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
os.setsid()
signal.signal(signal.SIGCHLD, lambda *_: None)
signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
print("ready", flush=True)


def bear(folder, name):
    """In the child: the program and its arguments. In the parent: nothing."""
    with open("%s/%s.asked" % (folder, name)) as f:
        words = f.read().split("\0")
    child = os.fork()
    if child:
        own[child] = "%s/%s.code" % (folder, name)
        return None
    signal.set_wakeup_fd(-1)
    for number, way in (signal.SIGCHLD, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL):
        signal.signal(number, way)
    how = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    to = {0: os.open("/dev/null", os.O_RDONLY), 1: os.open("%s/%s.out" % (folder, name), how, 0o644)}
    to[2] = to[1] if words[0] == "as one" else os.open("%s/%s.err" % (folder, name), how, 0o644)
    for number, file in to.items():
        os.dup2(file, number)
    os.closerange(3, 64)
    with open("%s/%s.born" % (folder, name), "w") as f:
        f.write("%d\n" % os.getpid())
    between = words.index("", 1)
    for word in words[1:between]:
        key, _, value = word.partition("=")
        os.environ[key] = value
    sys.argv = ["-c"] + words[between + 1 : -2]
    return words[-2]


def bury():
    try:
        os.read(ends, 4096)
    except BlockingIOError:
        pass
    while own:
        child, status = os.waitpid(-1, os.WNOHANG)
        if not child:
            return
        try:
            with open(os.open(own.pop(child), os.O_WRONLY | os.O_NONBLOCK), "w") as f:
                f.write("%d\n" % (os.waitstatus_to_exitcode(status) if status & 127 == 0 else 128 + (status & 127)))
        except OSError:
            pass  # nobody wants to know


def program():
    left = b""
    while True:
        for came in select.select([asked, ends, keeper], [], [])[0]:
            if came == keeper:
                os.killpg(0, signal.SIGKILL)
            elif came == ends:
                bury()
            else:
                left += os.read(asked, 65536)
        while b"\n" in left:
            line, _, left = left.partition(b"\n")
            text = bear(*line.decode().rsplit(" ", 1))
            if text is not None:
                return text


exec(compile(program(), "<string>", "exec"), {"__name__": "__main__", "__builtins__": __builtins__})
