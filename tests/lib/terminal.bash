# A terminal (tmux) with one program in it: what is to be seen in it, and what is typed. Every wait is for what is to be seen.
# Each terminal is a server under a name of its own: one that was told to end still answers for a while, and takes who comes next with it.
terminal_setup() {
	export TMUX_TMPDIR=$dir
	unset TMUX NO_COLOR
	terminals=0
}
terminal_teardown() {
	local n
	for ((n = 1; n <= ${terminals:-0}; n++)); do tmux -L "terminal$n" kill-server 2>/dev/null || true; done
}
# terminal COLUMNS LINES COMMAND...: as tmux takes it, a word is a shell's line; screen, sees, shows, keys and resize are about it from here on.
terminal() {
	local columns=$1 lines=$2
	shift 2
	terminals=$((terminals + 1))
	in_terminal -f /dev/null new-session -d -x "$columns" -y "$lines" "$@" 3>&-
}
in_terminal() { tmux -L "terminal$terminals" "$@"; }
screen() { in_terminal capture-pane -p "$@"; }
sees() { screen | grep -qE -- "$1"; }
shows() { # what is waited for; else what is there instead
	local end=$((SECONDS + TEST_TIMEOUT))
	until sees "$1"; do
		[ "$SECONDS" -lt "$end" ] || fail "not '$1' but: $(screen)" || return
		nap 0.02
	done
}
keys() { in_terminal send-keys "$@"; }
resize() { in_terminal resize-window -x "$1" -y "$2"; }
