# What every suite stands on: each test has its own state, sockets, home and servers; waits are for events, and nothing can hang.
# Load it first: `load lib/common`. Tests may be run one file at a time: `bats tests/circuit.bats`.
#
# TEST_TIMEOUT       seconds after which whatever a test waits for counts as hanging (one for all)
# TEST_ALLOWANCE_MS  what a loaded machine may add to a time that a test measures; 0 on an idle one
# TEST_BARE=1        only the parts that run without the shim: they test the world
: "${TEST_TIMEOUT:=30}" "${TEST_ALLOWANCE_MS:=0}" "${TEST_BARE:=}"

BATS_LIB_PATH=${BATS_LIB_PATH:-/usr/lib/bats}
# Their own load.bash asks for each of their files' folder by a process: a sixth of a short test's time.
for library in bats-support bats-assert; do
	for file in "$BATS_LIB_PATH/$library"/src/*.bash; do
		# shellcheck disable=SC1090
		source "$file"
	done
done

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
case ${BUILD:-build} in
/*) build=${BUILD:-build} ;;
*) build=$root/${BUILD:-build} ;;
esac
shim=$build/libresil.so
bin=$build/tests
# Debian's own programs, not a version manager's wrappers: those are shell scripts and would be other groups.
PATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH LC_ALL=C.UTF-8
unset LD_PRELOAD http_proxy https_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY all_proxy NO_PROXY no_proxy
unset "${!RESIL_@}" XDG_RUNTIME_DIR XDG_CONFIG_HOME

setup() { common_setup; }
teardown() { common_teardown; }

common_setup() {
	dir=$BATS_TEST_TMPDIR
	export RESIL_STATE_DIR=$dir/state RESIL_RUNTIME_DIR=$dir/run HOME=$dir/home
	mkdir -p "$HOME"
	via=()
	started=()
	start_watchdog
}

common_teardown() {
	local pid
	[ -z "${watchdog-}" ] || kill "$watchdog" 2>/dev/null || true
	for pid in ${started[@]+"${started[@]}"}; do kill -9 "$pid" 2>/dev/null || true; done
	for pid in ${started[@]+"${started[@]}"}; do wait "$pid" 2>/dev/null || true; done
}

# Ends the children of a test that has run for far too long; the test then fails by itself.
start_watchdog() {
	local test=$BASHPID
	(
		trap 'kill "$nap" 2>/dev/null; exit' TERM
		sleep $((TEST_TIMEOUT * 4)) &
		nap=$!
		wait "$nap"
		echo "# the test has run for $((TEST_TIMEOUT * 4)) s: its children are ended" >&2
		for child in $(cat /proc/"$test"/task/*/children); do
			[ "$child" = "$BASHPID" ] || kill -9 "$child" 2>/dev/null
		done
	) >/dev/null 3>&- 4>&- &
	watchdog=$!
}

# --- running things ---

# Without the shim. `via` may lead into a namespace (netns.bash).
bare() {
	${via[@]+"${via[@]}"} timeout -k 2 "$TEST_TIMEOUT" env -u LD_PRELOAD "$@" 3>&-
}

# Under the shim: the command alone, not what starts it.
under() {
	${via[@]+"${via[@]}"} timeout -k 2 "$TEST_TIMEOUT" env LD_PRELOAD="$shim" "$@" 3>&-
}

# In the background, ended with the test at the latest: start NAME [under|bare] COMMAND...; output in $dir/NAME.out and .err, pid in NAME_pid.
# For what is to be killed by its pid there must be no `timeout` in between: env and nsenter are replaced by the command.
start() {
	local name=$1 how=$2
	shift 2
	if [ "$how" = under ]; then set -- LD_PRELOAD="$shim" "$@"; else set -- -u LD_PRELOAD "$@"; fi
	${via[@]+"${via[@]}"} env "$@" >"$dir/$name.out" 2>"$dir/$name.err" </dev/null 3>&- &
	started+=("$!")
	printf -v "${name}_pid" %s "$!"
}

# Runs only in a full run: everything after it needs the shim.
shim_part() {
	[ -z "$TEST_BARE" ] || skip "the part without the shim has passed, and only that was asked for"
	[ -e "$shim" ] || fail "$shim is not there: run make first"
}

resil() { ${via[@]+"${via[@]}"} timeout -k 2 "$TEST_TIMEOUT" "$build/resil" "$@" 3>&-; }

# wait_until COMMAND...: until it succeeds; fails after TEST_TIMEOUT.
wait_until() {
	local end=$((SECONDS + TEST_TIMEOUT))
	until "$@"; do
		[ "$SECONDS" -lt "$end" ] || fail "waited ${TEST_TIMEOUT} s in vain for: $*"
		nap 0.02
	done
}
# nap SECONDS: as sleep, without another program; nothing ever comes from a pipe that is open for both ways.
nap() { read -rt "$1" <> <(:) || true; }
file_has() { grep -qE -- "$1" "$2" 2>/dev/null; }
is_gone() { ! kill -0 "$1" 2>/dev/null; }
now_ms() { echo $(($(date +%s%N) / 1000000)); }

# within MEASURED LIMIT: milliseconds, the allowance added.
within() {
	[ "$1" -le $(($2 + TEST_ALLOWANCE_MS)) ] || fail "took $1 ms; at most $2 ms (and $TEST_ALLOWANCE_MS ms of TEST_ALLOWANCE_MS) are right"
}

need_root() { [ "$(id -u)" = 0 ] || skip "needs root: $1"; }

# --- servers ---

# peer NAME ADDRESS MODE [PORT]: a server that behaves as it is told (servers/peer.c); its port in NAME_port.
peer() {
	local name=$1 address=$2 mode=$3 port=${4:-0}
	mkfifo "$dir/$name.in"
	# Opened for both ways: it never ends, and each command may open and close it.
	${via[@]+"${via[@]}"} "$bin/peer" "$address" "$port" "$mode" <>"$dir/$name.in" >"$dir/$name.log" 2>&1 3>&- &
	started+=("$!")
	printf -v "${name}_pid" %s "$!"
	wait_until peer_is_up "$name" "$mode" "$!"
	printf -v "${name}_port" %s "$(sed -n "s/^$mode //p" "$dir/$name.log")"
}
peer_is_up() {
	! is_gone "$3" || fail "the server did not start: $(cat "$dir/$1.log")"
	file_has "^$2 " "$dir/$1.log"
}
# peer_now NAME MODE: returns when the mode is in force.
peer_now() {
	local name=$1 mode=$2 before
	before=$(grep -c "^$mode " "$dir/$name.log" || true)
	echo "$mode" >"$dir/$name.in"
	wait_until peer_has "$name" "$mode" $((before + 1))
}
peer_has() { [ "$(grep -c "^$2 " "$dir/$1.log" || true)" -ge "$3" ]; }
# How many connections it has accepted.
peer_accepted() { grep -c '^accepted ' "$dir/$1.log" || true; }

# --- what happened ---

# traced FILE [under|bare] COMMAND...: with the connects of all its processes in FILE.
traced() {
	local file=$1 how=$2 set=()
	shift 2
	[ "$how" = bare ] || set=(-E "LD_PRELOAD=$shim")
	${via[@]+"${via[@]}"} timeout -k 2 "$TEST_TIMEOUT" strace -f --seccomp-bpf -ttt -T -e trace=connect,close,shutdown -e signal=none \
		-o "$file" ${set[@]+"${set[@]}"} "$@" 3>&-
}
# How many attempts to connect to this port entered the kernel. A second connect on a descriptor that is still connecting asks for the
# result (redis-cli, perl) and is no attempt.
connects_to() {
	awk -v port="$1" '
		/ connect\([0-9]+, \{sa_family=AF_INET/ && index($0, "htons(" port ")") {
			match($0, /connect\([0-9]+/)
			fd = $1 " " substr($0, RSTART + 8, RLENGTH - 8)
			if (!pending[fd]++)
				n++
		}
		/ close\([0-9]+/ {
			match($0, /close\([0-9]+/)
			delete pending[$1 " " substr($0, RSTART + 6, RLENGTH - 6)]
		}
		END { print n + 0 }' "$2"
}
# How long the first connect to the port was waited for, in ms: from its begin to the moment where it was ended (connect(AF_UNSPEC), shutdown or
# close of its descriptor), in ms.
connect_wait_ms() {
	awk -v port="$1" '
		{ at = $2 }
		!begin && /connect\(/ && index($0, "htons(" port ")") {
			begin = at
			match($0, /connect\([0-9]+/)
			fd = substr($0, RSTART + 8, RLENGTH - 8)
			next
		}
		begin && (/connect\([0-9]+, \{sa_family=AF_UNSPEC/ || $0 ~ "(close|shutdown)\\(" fd "[,)]") {
			printf "%d\n", (at - begin) * 1000
			exit
		}' "$2"
}
# What changes from run to run is taken out of a program's words.
normalised() { sed -E 's/[0-9]+ ms/N ms/g; s/[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8}/DATE/g; s/[0-9]+(\.[0-9]+)?s\b/Ns/g'; }

# destination NAME FIELD [resil status' options]: a field of a destination as JSON; a string without its quotes.
destination() {
	local name=$1 field=$2 status
	shift 2
	status=$(resil status --json "$@") || return
	jq -rc --arg name "$name" --arg field "$field" '
		[.groups[].destinations[] | select(.name == $name)]
		| if length == 0 then error("no destination \($name)") else .[0] | getpath($field / ".") end' <<<"$status"
}
state_is() { [ "$(destination "$1" state)" = "$2" ]; }
# failed_by NAME KIND: how many calls failed so.
failed_by() { destination "$1" failures | jq --arg kind "$2" '.[$kind] // 0'; }
# transitions NAME: one "from>to" a line, oldest first.
transitions() {
	resil events --json |
		jq -r --arg name "$1" 'select(.type == "transition" and .destination == $name) | "\(.from)>\(.to)"'
}
