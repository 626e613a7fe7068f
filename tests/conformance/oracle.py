#!/usr/bin/python3
"""What a program asks of the kernel and gets, bare and under the shim: the same calls, with the same results, thread by thread.

usage: oracle.py SHIM FOLDER NAME COMMAND...      one TAP line, and what differs; exit 0 when nothing does

strace -i tells where each call was made from. What comes from libresil.so's own text is ours and is left out (but for the few calls
that the shim makes in the app's name), as are its threads and the loader's work on it; all else must be as it is bare. Descriptors keep
their numbers: the shim's own are out of the way, and that is part of what is compared.

The program runs bare twice. Threads that did the same both times are compared call by call, in order. Of the others (races of the
program's own) one that did just what it did in some bare run is compared in order too, the rest as multisets: every kind of call as often
as bare runs made it. A difference counts when it is still
there after further runs of both, since two runs do not show every order there is.
"""
import collections
import os
import re
import shutil
import subprocess
import sys

CALLS = "%network,%desc,%file,%process,prctl"
LIMIT = 60  # seconds a run may take
ROUNDS = 5  # runs of each kind before a difference stands
OURS_IN_THE_APPS_NAME = {"vfork", "execve", "execveat", "exit", "exit_group", "prctl"}  # prctl: ours is only in threads of ours, and early

LINE = re.compile(r"(\d+) +\[([0-9a-f?]+)\] (.*)", re.S)
RESUMED = re.compile(r"<\.\.\. (\w+) resumed>(.*)", re.S)
CALL = re.compile(r"(\w+)\((.*)\) += (\S+)(.*)", re.S)
ABOUT_ITSELF = re.compile(r'"/proc/(self|\d+)/(task/\d+/)?(s?maps|smaps_rollup|statm?|status)"')
FORKS = {"clone", "clone3", "fork", "vfork"}


class Process:
    """An address space, as far as it matters: where libresil.so is, and the descriptor by which the loader maps it."""

    def __init__(self, ranges=()):
        self.ranges, self.loading = list(ranges), None
        self.early = set()
        self.about_itself = set()  # descriptors of what the kernel says of the process: we are in it, rightly


def calls_of(path):
    """[(tid, address, text)]: interrupted lines joined, each where it began."""
    calls, open_at = [], {}
    with open(path, errors="replace") as file:
        for line in file:
            match = LINE.match(line.rstrip("\n"))
            if not match:
                continue
            tid, address, text = match.groups()
            resumed = RESUMED.match(text)
            if resumed and tid in open_at:
                calls[open_at.pop(tid)][2] += resumed.group(2)
                continue
            if text.endswith("<unfinished ...>"):
                open_at[tid] = len(calls)
                text = text[: -len(" <unfinished ...>")]
            calls.append([tid, address, text])
    return calls


def threads_of(path, server_ports):
    """{place of the thread in the tree: [what it asked and got]}, the app's own only."""
    calls = calls_of(path)
    ours, parents = set(), {}
    for tid, _, text in calls:
        if text.startswith('prctl(PR_SET_NAME, "resil-'):
            ours.add(tid)
        match = CALL.match(text)
        if match and match.group(1) in FORKS and match.group(3).isdigit():
            parents[match.group(3)] = (tid, "CLONE_THREAD" in text)
    tids = {tid for tid, _, _ in calls} | set(parents)
    places, spaces, born, threads = {}, {}, collections.Counter(), {}

    def place(tid):
        if tid not in places:
            if tid in parents and parents[tid][0] not in ours:
                parent = parents[tid][0]
                above = place(parent)
                born[parent] += 1
                places[tid] = f"{above}.{born[parent]}"
            else:
                places[tid] = "?" if "0" in places.values() else "0"
        return places[tid]

    # Children are named in the order in which their parents made them, whoever was written down first.
    if calls:
        place(calls[0][0])
    for child in parents:
        if child not in ours:
            place(child)

    def meet(tid):  # when it first does something: its parent's space is the right one then
        if tid not in spaces:
            parent, is_thread = parents.get(tid, (None, False))
            if parent in places:
                meet(parent)
            space = spaces.get(parent, Process())
            spaces[tid] = space if is_thread else Process(space.ranges)
            threads[place(tid)] = []

    for tid, address, text in calls:
        if tid in ours:
            continue
        meet(tid)
        space, out = spaces[tid], threads[places[tid]]
        if text.startswith("+++") or text.startswith("---"):
            if not re.match(r"--- SIG(CHLD|URG|CONT) ", text):
                out.append(re.sub(r" \{.*\} ", " ", text))
            continue
        match = CALL.match(text)
        name, args, result, rest = match.groups() if match else (text.split("(")[0], text.partition("(")[2], "?", "")
        if name == "execve" and result == "0":
            space = spaces[tid] = Process()
        if name == "openat" and "libresil.so" in args and result.isdigit():
            space.loading = result
            continue
        if space.loading is not None:
            if name == "mmap" and re.search(rf", {space.loading}, [0-9a-fx]+$", args):
                begin, size = int(result, 16), int(args.split(", ")[1])
                space.ranges.append((begin, begin + size))
                continue
            if args.split(",")[0] == space.loading:
                if name == "close":
                    space.loading = None
                continue
        if name not in OURS_IN_THE_APPS_NAME and "?" not in address:
            at = int(address, 16)
            if any(begin <= at < end for begin, end in space.ranges):
                # Before our constructor the app's calls are made from our text (jemalloc begins with open, which we never use).
                if name == "open":
                    space.early.add(result)
                elif args.split(",")[0] not in space.early:
                    continue
                elif name == "close":
                    space.early.discard(args)
        if name in FORKS and result in ours:
            continue
        if name == "openat" and ABOUT_ITSELF.search(args):
            space.about_itself.add(result)
        elif args.split(",")[0] in space.about_itself:
            if name == "close":
                space.about_itself.discard(args)
            elif MOVES_DATA.match(name):
                continue
        said = normal(name, args, result, rest, tids, server_ports)
        # A message written byte by byte to stderr has as many bytes as its times have digits.
        if said and not (said == "write(2, , 1) = 1" and out and out[-1] == said):
            out.append(said)
    return {place: said for place, said in threads.items() if said}


DATA = re.compile(r'"(?:[^"\\]|\\.)*"(?:\.\.\.)?')
MOVES_DATA = re.compile(r"p?(read|write)(v|v2|64)?$|recv|send|splice|getdents")
TAKES_PID = {"wait4", "waitid", "kill", "tgkill", "pidfd_open", "prlimit64"}


def normal(name, args, result, rest, tids, server_ports):
    if name in ("mmap", "munmap", "mprotect") and ", -1, 0" in args or name in ("munmap", "mprotect", "exit"):
        return None
    if name == "execve":
        args = re.sub(r"/\* \d+ vars.*?\*/", "", args)
    if name in FORKS:
        args, result = " ".join(sorted(set(re.findall(r"CLONE_\w+|SIG\w+", args)))), "PID"
    if name in ("wait4", "waitid", "prctl", "kill", "tgkill"):
        rest = ""
    if MOVES_DATA.match(name):
        args = DATA.sub("", args)
    if name in ("poll", "epoll_wait"):
        args = re.sub(r", [1-9]\d*$", ", T", args)
    if name == "epoll_pwait":
        args = re.sub(r", [1-9]\d*(, (NULL|\[.*\]), \d+)$", r", T\1", args)
    text = f"{name}({args}) = {result}{rest if result.startswith('-') or name in ('poll', 'ppoll', 'select', 'pselect6') else ''}"
    text = re.sub(r"\{tv_sec=-?\d+, tv_u?n?sec=-?\d+\}", "T", text)
    text = re.sub(r",? ?left T", "", text)
    text = re.sub(r"0x[0-9a-f]{5,}", "P", text)
    text = re.sub(r"\b(u32|u64)=\d+", r"\1=N", text)
    text = re.sub(r"htons\((\d+)\)", lambda m: m.group(0) if m.group(1) in server_ports else "htons(E)", text)
    text = re.sub(r"(sin6?_port|sin6_flowinfo|nl_pid|nl_groups)=(\d+)\b", r"\1=N", text)
    text = re.sub(r"(socket|pipe):\[\d+\]", r"\1:[N]", text)
    text = re.sub(r"tcpi_\w+=[^,}]*,? ?", "", text)
    pid = lambda m: re.sub(r"\d+", lambda n: "PID" if n.group(0) in tids else n.group(0), m.group(0))
    return re.sub(r".*" if name in TAKES_PID else r'"[^"]*"', pid, text)


class Run:
    def __init__(self, shim, folder, label, command, ports):
        self.label = label
        base = os.path.join(folder, label)
        state = base + ".state"  # each run meets closed circuits
        for path in (state, base + ".run"):
            shutil.rmtree(path, ignore_errors=True)
        environ = dict(os.environ, RESIL_STATE_DIR=state, RESIL_RUNTIME_DIR=base + ".run")
        environ.pop("LD_PRELOAD", None)
        how = ["-E", "LD_PRELOAD=" + shim] if shim else []
        strace = ["strace", "-f", "-i", "--seccomp-bpf", "-s", "32", "-e", "trace=" + CALLS, "-o", base + ".trace", *how]
        done = subprocess.run(["timeout", "-k", "2", str(LIMIT), *strace, *command],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ, check=False)
        self.code = done.returncode
        self.words = re.sub(rb"\d+ ms|\d+(\.\d+)? ?[KM]?B/s|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", b"N", done.stdout + done.stderr)
        self.threads = threads_of(base + ".trace", ports)

    def total(self):
        return sum(map(len, self.threads.values()))


def without_numbers(said):
    """For multisets: which number a descriptor got is part of the race."""
    said = re.sub(r"^(\w+\()\d+", r"\1F", said)
    said = re.sub(r"fd=\d+|\bevents=\d+", "fd=F", said)
    if re.match(r"socket|accept|openat|dup|epoll_create|eventfd|fcntl\(F, F_DUPFD|pidfd", said):
        said = re.sub(r"= \d+$", "= F", said)
    return re.sub(r"\[\d+, \d+\]", "[F, F]", said)


def compare(bares, guest):
    """(calls compared in order, calls compared as multisets, what differs)"""
    first = bares[0]
    in_order = {p for p in first.threads if all(b.threads.get(p) == first.threads[p] for b in bares)}
    in_order |= {p for p in guest.threads if any(b.threads.get(p) == guest.threads[p] for b in bares)}
    differences, ordered, pooled = [], 0, 0
    for place in sorted(in_order):
        want, got = first.threads.get(place, []), guest.threads.get(place, [])
        ordered += len(got)
        if all(b.threads.get(place) != got for b in bares):
            at = next((i for i, (a, b) in enumerate(zip(want, got)) if a != b), min(len(want), len(got)))
            differences.append(f"thread {place}, call {at + 1}: bare: {want[at] if at < len(want) else 'no more'}")
            differences.append(f"thread {place}, call {at + 1}: shim: {got[at] if at < len(got) else 'no more'}")
    pools = [collections.Counter(without_numbers(s) for p, said in r.threads.items() if p not in in_order for s in said) for r in bares]
    mine = collections.Counter(without_numbers(s) for p, said in guest.threads.items() if p not in in_order for s in said)
    pooled = sum(mine.values())
    for said in sorted(set(mine).union(*pools)):
        counts = [pool[said] for pool in pools]
        if not min(counts) <= mine[said] <= max(counts):
            differences.append(f"bare {'/'.join(map(str, counts))} times, shim {mine[said]}: {said}")
    if (first.code, first.words) != (guest.code, guest.words) and all((b.code, b.words) != (guest.code, guest.words) for b in bares):
        differences.append(f"bare ends with {first.code}: {first.words[-200:]!r}")
        differences.append(f"shim ends with {guest.code}: {guest.words[-200:]!r}")
    return ordered, pooled, differences


def main():
    shim, folder, name, command = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
    ports = set(os.environ.get("ORACLE_PORTS", "").split())
    folder = os.path.join(folder, name)
    os.makedirs(folder, exist_ok=True)
    bares = [Run(None, folder, f"bare{n}", command, ports) for n in (1, 2)]
    rounds = 0
    while True:
        guest = Run(shim, folder, f"shim{rounds}", command, ports)
        ordered, pooled, differences = compare(bares, guest)
        rounds += 1
        if not differences or rounds == ROUNDS:
            break
        bares.append(Run(None, folder, f"bare{len(bares) + 1}", command, ports))
        if not bares[-1].threads:
            break
    if not ordered + pooled:
        differences.append("nothing was traced")
    told = f"{name}: {ordered} calls in order" + (f", {pooled} of threads that race bare too, as multisets" if pooled else "")
    if rounds > 1:
        told += f" ({len(bares)} bare runs, {rounds} under the shim)"
    print(("not ok - " if differences else "ok - ") + told)
    for line in differences[:12]:
        print("# " + line)
    if not differences and not os.environ.get("ORACLE_KEEP"):
        shutil.rmtree(folder)
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
