#!/usr/bin/env bats
# More hosts, refused by the system, at every place where we ask it for something: the program runs on, and says what it says without us (E7, CP10).
# Stands on a build of the shim whose own system calls fail in turn (src/base/fail.h).
load lib/common
load lib/failing

@test "each of our system calls refused: python's asyncio says what it says bare (CP10 E7)" {
	peer dead 127.0.0.1 refuse
	errno=11 each_refused python3 -S -c '
import asyncio, sys
async def main():
    for i in range(3):
        try:
            await asyncio.open_connection("127.0.0.1", int(sys.argv[1]))
        except OSError as e:
            print(type(e).__name__, e.errno)
asyncio.run(main())' "$dead_port"
}

@test "each of our system calls refused: children of a fork connect as they do bare (CP10 E7 E4)" {
	peer dead 127.0.0.1 refuse
	each_refused perl -MIO::Socket::INET -e '
		for (1 .. 2) {
			my $pid = fork;
			if (!$pid) { IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => $ARGV[0]); print "child ", $! + 0, "\n"; exit 0 }
			waitpid $pid, 0;
			print "code $?\n";
			IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => $ARGV[0], Timeout => 5);
			print "parent ", $! + 0, "\n";
		}' "$dead_port"
}
