# A network namespace of a test's own: its TCP counters are the test's alone, and a veth pair in it leads nowhere.
# Root, or a kernel that lets users unshare; skips with the reason where neither is given.

# From here on `under`, `bare`, `start`, `peer` and `resil` run in a namespace of their own.
netns_start() {
	local flags=(-n) enter=(-n)
	if [ "$(id -u)" != 0 ]; then
		flags=(-U -r -n)
		enter=(-U -n --preserve-credentials)
	fi
	unshare "${flags[@]}" true 2>/dev/null || skip "a network namespace is not to be had here"
	unshare "${flags[@]}" sh -c 'ip link set lo up && echo ready && exec sleep 600' >"$dir/netns.log" 2>&1 3>&- &
	netns_pid=$!
	started+=("$netns_pid")
	wait_until file_has ready "$dir/netns.log"
	via=(nsenter -t "$netns_pid" "${enter[@]}" --)
}

# A neighbour that is known but not there: SYNs leave and nothing ever comes back. Sets black_hole.
netns_black_hole() {
	black_hole=192.0.2.9
	"${via[@]}" sh -ec "
		ip link add bh0 type veth peer name bh1
		ip link set bh0 up
		ip link set bh1 up
		ip addr add 192.0.2.1/24 dev bh0
		ip neigh add $black_hole lladdr 02:00:00:00:00:09 dev bh0 nud permanent" 2>"$dir/netns.err" ||
		skip "a veth pair is not to be had here: $(cat "$dir/netns.err")"
}

# How many SYNs (not counting repeats of the same) have left in this namespace.
syns_sent() { "${via[@]}" awk '/^Tcp:/ { if (n++) print $6 }' /proc/net/snmp; }
