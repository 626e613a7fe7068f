# A program under the shim that does as the lines of its stdin say, and prints a line for each: asks LINE, and what it said in $said.

# asker_run [VARIABLE=VALUE...] COMMAND...
asker_run() {
	rm -f "$dir/asker.in"
	mkfifo "$dir/asker.in"
	: >"$dir/asker.said" # of an earlier one: before this one can be asked
	env LD_PRELOAD="$shim" "$@" <>"$dir/asker.in" >"$dir/asker.said" 2>"$dir/asker.err" 3>&- &
	started+=("$!")
	asker_pid=$!
	asked=0
}
asker_start() { # PORT [VARIABLE=VALUE...]
	local port=$1
	shift
	asker_run "$@" python3 "$root/tests/programs/asker.py" "$port"
}
asker_has_said() { [ "$(wc -l <"$dir/asker.said")" -ge "$asked" ] || is_gone "$asker_pid"; }
asks() {
	begin_asking "$*"
	hears
}
begin_asking() {
	asked=$((asked + 1))
	echo "$*" >"$dir/asker.in"
}
hears() {
	wait_until asker_has_said
	said=$(sed -n "${asked}p" "$dir/asker.said")
}
