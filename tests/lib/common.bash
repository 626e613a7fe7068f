# What every suite stands on: each test has its own state, sockets, home and servers; waits are for events, and nothing can hang.
# Load it first: `load lib/common`. Tests may be run one file at a time: `bats tests/circuit.bats`.
#
# TEST_TIMEOUT       seconds after which whatever a test waits for counts as hanging (one for all)
# TEST_ALLOWANCE_MS  what a loaded machine may add to a time that a test measures; 0 on an idle one
# TEST_TRIES         how often a test may run that fails for nothing but that something was late (3): a crowded machine is late now and
#                    then, a limit that does not hold is late each time
# TEST_BARE=1        only the parts that run without the shim: they test the world
: "${TEST_TIMEOUT:=30}" "${TEST_ALLOWANCE_MS:=0}" "${TEST_TRIES:=3}" "${TEST_BARE:=}"

BATS_LIB_PATH=${BATS_LIB_PATH:-/usr/lib/bats}
# Their own load.bash asks for each of their files' folder by a process: a sixth of a short test's time.
for library in bats-support bats-assert; do
	for file in "$BATS_LIB_PATH/$library"/src/*.bash; do
		# shellcheck disable=SC1090
		source "$file"
	done
done

# No process is started for what the shell itself can do: what a fork and an exec cost is most of what the suite costs.
caller_folder=$PWD
cd "${BASH_SOURCE[0]%/*}/../.." || exit
root=$PWD
cd "$caller_folder" || exit
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
	without_tracing
	dir=$BATS_TEST_TMPDIR
	export RESIL_STATE_DIR=$dir/state RESIL_RUNTIME_DIR=$dir/run HOME=$dir/home TEST_LATE=$dir/late
	via=()
	started=()
	"$bin/keeper" "$BASHPID" $((TEST_TIMEOUT * 8)) "$dir" 3>&- 4>&-
}

common_teardown() {
	local pid
	for pid in ${started[@]+"${started[@]}"}; do kill -9 "$pid" 2>/dev/null || true; done
	for pid in ${started[@]+"${started[@]}"}; do wait "$pid" 2>/dev/null || true; done
	[ ! -e "$dir/kept" ] || fail "it waited in vain for $((TEST_TIMEOUT * 8)) s"
}

# Bats notes where it is before each command, by some thirty commands of its own: a third of what a test costs. Where a test fails is
# known when it fails, too.
without_tracing() {
	[ "${BATS_TRACE_LEVEL:-0}" = 0 ] || return 0
	trap - DEBUG
	bats_error_trap() {
		bats_check_status_from_trap
		[ -z "$BATS_DEBUG_LAST_STACK_TRACE_IS_VALID" ] || return 0
		bats_capture_stack_trace
		BATS_DEBUG_LAST_STACK_TRACE_IS_VALID=1
	}
}
# What bats asks `date` for, by a shell that knows.
get_mills_since_epoch() { echo $((${EPOCHREALTIME/[^0-9]/} / 1000)); }

# --- running things ---

# Without the shim. `via` may lead into a namespace (netns.bash).
bare() {
	${via[@]+"${via[@]}"} "$bin/limited" "$TEST_TIMEOUT" "$@" 3>&-
}

# Under the shim: the command alone, not what starts it.
under() {
	${via[@]+"${via[@]}"} "$bin/limited" "$TEST_TIMEOUT" -p "$shim" "$@" 3>&-
}

# In the background, ended with the test at the latest: start NAME [under|bare] COMMAND...; output in $dir/NAME.out and .err, pid in NAME_pid.
# For what is to be killed by its pid there must be nothing in between: env and nsenter are replaced by the command.
start() {
	local name=$1 how=$2
	shift 2
	if [ "$how" != under ]; then
		unset LD_PRELOAD
		exec ${via[@]+"${via[@]}"} "$@"
	elif [ ${#via[@]} -gt 0 ]; then
		exec "${via[@]}" env LD_PRELOAD="$shim" "$@"
	else
		LD_PRELOAD=$shim exec "$@"
	fi >"$dir/$name.out" 2>"$dir/$name.err" </dev/null 3>&- &
	started+=("$!")
	printf -v "${name}_pid" %s "$!"
}

# Runs only in a full run: everything after it needs the shim.
shim_part() {
	[ -z "$TEST_BARE" ] || skip "the part without the shim has passed, and only that was asked for"
	[ -e "$shim" ] || fail "$shim is not there: run make first"
}

resil() { ${via[@]+"${via[@]}"} "$bin/limited" "$TEST_TIMEOUT" "$build/resil" "$@" 3>&-; }

# wait_until COMMAND...: until it succeeds; fails after TEST_TIMEOUT, and at once where the command says that it is in_vain. It ends also
# where its caller looks at its code, and a failed command ends nothing.
wait_until() {
	local end=$((SECONDS + TEST_TIMEOUT)) vain=
	until "$@"; do
		[ -n "$vain" ] || [ "$SECONDS" -lt "$end" ] || vain="waited ${TEST_TIMEOUT} s in vain for: $*"
		if [ -n "$vain" ]; then
			fail "$vain"
			return 1
		fi
		nap 0.02
	done
}
# in_vain WORDS: for commands that wait_until asks: it can never come true.
in_vain() {
	vain=$1
	return 1
}
# nap SECONDS: as sleep, without another program; nothing ever comes from a pipe that is open for both ways.
nap() { read -rt "$1" <>"$dir/nap" || true; }
# file_has EXPRESSION FILE: a line of it matches. Plain words are looked for by the shell itself.
file_has() {
	local words=${1#^} all=
	words=${words%\$}
	case $words in
	*[!A-Za-z0-9_:,\ =/-]*)
		grep -qE -- "$1" "$2" 2>/dev/null
		return
		;;
	esac
	[ -e "$2" ] || return 1
	IFS= read -rd '' all <"$2" || true
	[[ $1 != ^* ]] || words=$'\n'$words all=$'\n'$all
	[[ $1 != *\$ ]] || words+=$'\n'
	[[ $all == *"$words"* ]]
}
# lines_with WORDS FILE: how many lines of it begin with these words.
lines_with() {
	local line n=0
	while IFS= read -r line; do
		[[ $line != "$1"* ]] || n=$((n + 1))
	done <"$2"
	echo "$n"
}
is_gone() { ! kill -0 "$1" 2>/dev/null; }
now_ms() { echo $((${EPOCHREALTIME/[^0-9]/} / 1000)); }

# within MEASURED LIMIT: milliseconds, the allowance added.
within() {
	[ "$1" -le $(($2 + TEST_ALLOWANCE_MS)) ] || too_late "took $1 ms; at most $2 ms (and $TEST_ALLOWANCE_MS ms of TEST_ALLOWANCE_MS) are right"
}
# too_late WORDS: fails; the test runs again, TEST_TRIES times in all. Programs that find something late leave a file TEST_LATE.
too_late() {
	: >"$TEST_LATE"
	fail "$1"
}
bats_should_retry_test() {
	[ -e "$BATS_TEST_TMPDIR/late" ] && [ "$BATS_TEST_TRY_NUMBER" -lt "$TEST_TRIES" ] || return 1
	echo "# late, the $BATS_TEST_TRY_NUMBER. time: $BATS_TEST_DESCRIPTION" >&3
}

need_root() { [ "$(id -u)" = 0 ] || skip "needs root: $1"; }

# --- servers ---

# free_port: nobody listens at it. It is below those that the kernel gives out by itself, so that no connection and no server of another
# test has it by then; each is given in turn, whoever asks.
free_port() {
	local first=10000 beyond port
	read -r beyond _ </proc/sys/net/ipv4/ip_local_port_range
	[ "$beyond" -gt $((first + 1000)) ] && [ "$beyond" -le 32768 ] || beyond=32768
	(
		exec 9<>"${TMPDIR:-/tmp}/resil-test-port.$EUID"
		flock 9
		read -r port <&9 || port=$((first + RANDOM % (beyond - first)))
		while port=$((port + 1)); do
			[ "$port" -lt "$beyond" ] || port=$first
			listens "$port" || break
		done
		printf '%05d\n' "$port" >"/proc/self/fd/9"
		echo "$port"
	) 3>&-
}
listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# peer NAME ADDRESS MODE [PORT]: a server that behaves as it is told (servers/peer.c); its port in NAME_port.
peer() {
	local name=$1 address=$2 mode=$3 port=${4:-0}
	: >"$dir/$name.log" # of an earlier one: before the new one can be asked for
	${via[@]+"${via[@]}"} "$bin/peer" "$address" "$port" "$mode" "$dir/$name.in" </dev/null >"$dir/$name.log" 2>&1 3>&- &
	started+=("$!")
	printf -v "${name}_pid" %s "$!"
	wait_until peer_is_up "$name" "$mode" "$!"
}
peer_is_up() {
	! is_gone "$3" || in_vain "the server did not start: $(cat "$dir/$1.log")" || return
	says "$1_port" "$2 " "$dir/$1.log"
}
# says VARIABLE WORDS FILE: what its first line that begins with the words goes on with; only once it is whole, for servers write in parts.
says() {
	local line
	[ -e "$3" ] || return
	while IFS= read -r line; do
		[[ $line == "$2"* ]] || continue
		printf -v "$1" %s "${line#"$2"}"
		return
	done <"$3"
	return 1
}
# peer_now NAME MODE: returns when the mode is in force.
peer_now() {
	local name=$1 mode=$2 before
	before=$(lines_with "$mode " "$dir/$name.log")
	echo "$mode" >"$dir/$name.in"
	wait_until peer_has "$name" "$mode" $((before + 1))
}
peer_has() { [ "$(lines_with "$2 " "$dir/$1.log")" -ge "$3" ]; }
# How many connections it has accepted, with those that wait at its door.
peer_accepted() {
	local pid=$1_pid before
	if ! is_gone "${!pid}"; then
		before=$(lines_with all "$dir/$1.log")
		echo all 1<>"$dir/$1.in"
		wait_until peer_told_all "$1" $((before + 1)) "${!pid}"
	fi
	lines_with 'accepted ' "$dir/$1.log"
}
peer_told_all() { [ "$(lines_with all "$dir/$1.log")" -ge "$2" ] || is_gone "$3"; }

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
	local name=$1 field=$2
	shift 2
	${via[@]+"${via[@]}"} "$bin/shown" "$build/resil" "$TEST_TIMEOUT" "$name" "$field" "$@" 3>&-
}
state_is() { [ "$(destination "$1" state)" = "$2" ]; }
# failed_by NAME KIND: how many calls failed so.
failed_by() {
	local n
	n=$(destination "$1" "failures.$2") || return
	echo "${n/#null/0}"
}
# What the calls of a destination came to: "3 success 1 failure reset 1".
came_to() { destination "$1" calls-and-failures; }
# transitions NAME: one "from>to" a line, oldest first.
transitions() {
	resil events --json |
		jq -r --arg name "$1" 'select(.type == "transition" and .destination == $name) | "\(.from)>\(.to)"'
}
