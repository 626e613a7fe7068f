# What the parts of the conformance run stand on: source it. A part prints TAP lines (`ok - ...`, `not ok - ...`, `# SKIP`), ends every server by its
# pid, and leaves nothing behind. Everything runs twice: bare, then under the shim with every breaker on.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=${here%/tests/conformance}
build=${BUILD:-build}
case $build in /*) ;; *) build=$root/$build ;; esac
shim=$build/libresil.so
# Debian's own programs, not a version manager's wrappers.
PATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/lib/postgresql/15/bin
export PATH LC_ALL=C.UTF-8
unset LD_PRELOAD http_proxy https_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY all_proxy NO_PROXY no_proxy
unset "${!RESIL_@}" XDG_RUNTIME_DIR XDG_CONFIG_HOME
[ -e "$shim" ] || { echo "not ok - $shim is not there: run make first"; exit 1; }

part=${0##*/}
LIMIT=${LIMIT:-60} # seconds after which whatever is waited for counts as hanging
work=$(mktemp -d)
chmod 755 "$work"
export HOME=$work/home TMPDIR=$work/tmp RESIL_STATE_DIR=$work/state RESIL_RUNTIME_DIR=$work/run
mkdir -p "$HOME" "$TMPDIR"
servers=()
ended() { # ended PID: by TERM, or after five seconds by KILL
	local tries
	kill "$1" 2>/dev/null || return 0
	for tries in $(seq 250); do
		kill -0 "$1" 2>/dev/null || break
		sleep 0.02
	done
	kill -9 "$1" 2>/dev/null
	wait "$1" 2>/dev/null
}
stop_servers() {
	local pid
	for pid in ${servers[@]+"${servers[@]}"}; do ended "$pid"; done
	servers=()
}
finish() {
	stop_servers
	[ -n "${CONFORMANCE_KEEP-}" ] && echo "# kept: $work" || rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

failed=0
ok() { echo "ok - $*"; }
not_ok() {
	failed=1
	echo "not ok - $*"
}
skip_all() {
	echo "ok - $part # SKIP $*"
	exit 0
}

# --- running, as `how` says: bare or shim ---

how=bare
preload() { [ "$how" = bare ] && preload=(env) || preload=(env "LD_PRELOAD=$shim"); }
run() { # bounded in time
	local preload
	preload
	timeout -k 2 "$LIMIT" "${preload[@]}" "$@" </dev/null
}
serve() { # serve COMMAND...: in the background; server_pid; its words in $work/HOW.server-N
	local preload
	preload
	# No process between: what is ended is the server itself.
	"${preload[@]}" "$@" >"$work/$how.server-${#servers[@]}" 2>&1 </dev/null &
	server_pid=$!
	servers+=("$server_pid")
}
# A port that nobody listens at, below those that the kernel gives out.
free_port() {
	local try hex
	for try in $(seq 200); do
		port=$((20000 + RANDOM % 12000))
		printf -v hex ':%04X ' "$port"
		grep -q "$hex" /proc/net/tcp /proc/net/tcp6 2>/dev/null || return 0
	done
	return 1
}
listens() { # PORT
	local hex
	printf -v hex ':%04X [0-9A-F]*:0000 0A' "$1"
	grep -q "$hex" /proc/net/tcp /proc/net/tcp6 2>/dev/null
}
wait_for() { # COMMAND...: until it succeeds
	local end=$((SECONDS + LIMIT))
	until "$@"; do
		if [ "$SECONDS" -ge "$end" ] || ! kill -0 "$server_pid" 2>/dev/null; then
			echo "in vain waited for: $*; the server says: $(tail -n 5 "$work/$how".server-* 2>/dev/null)"
			return 1
		fi
		sleep 0.02
	done
}

# guarded: "CALLS REJECTED" of all groups of this run; that the shim was there at all.
guarded() {
	"$build/resil" status --json 2>/dev/null | python3 -c '
import json, sys
calls = rejected = 0
for group in json.load(sys.stdin)["groups"]:
    for d in group["destinations"]:
        calls += d["calls"]["total"]
        rejected += d["calls"]["rejected"]
print(calls, rejected)'
}

# both NAME FUNCTION [REJECTIONS]: the function runs bare and under the shim; what it prints and returns must be the same, bare without an error,
# and under the shim calls must have been guarded, none rejected (but where REJECTIONS says `rejects`). Its last line tells what was done.
both() {
	local name=$1 body=$2 rejects=${3-} began=$SECONDS code_bare code_shim calls rejected
	for how in bare shim; do
		export HOW=$how
		rm -rf "$RESIL_STATE_DIR" "$RESIL_RUNTIME_DIR"
		mkdir -p "$work/$how"
		(
			cd "$work/$how" || exit 1
			servers=()
			trap stop_servers EXIT
			"$body"
		) >"$work/$name.$how" 2>&1
		printf -v "code_$how" %s $?
	done
	read -r calls rejected < <(guarded)
	if [ "$code_bare" != 0 ]; then
		not_ok "$name: fails without the shim already, with $code_bare"
		tail -n 5 "$work/$name.bare" | sed 's/^/# /'
	elif [ "$code_shim" != 0 ] || ! diff "$work/$name.bare" "$work/$name.shim" >"$work/diff"; then
		not_ok "$name: not as without the shim (exit code $code_shim)"
		diff "$work/$name.bare" "$work/$name.shim" | head -n 20 | sed 's/^/# /'
	elif [ "${calls:-0}" = 0 ]; then
		not_ok "$name: the shim has seen no call"
	elif [ "$rejected" != 0 ] && [ -z "$rejects" ]; then
		not_ok "$name: $rejected of $calls calls rejected"
	else
		ok "$name: $(tail -n 1 "$work/$name.shim"); $calls calls guarded, $rejected rejected ($((SECONDS - began)) s)"
	fi
	rm -rf "${work:?}/bare" "${work:?}/shim"
}
