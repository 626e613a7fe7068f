# Runs the commands that a document has in its blocks, in a house of its own. Load it after `lib/common`.

# The commands of a document's blocks, one a line: those in sh blocks, and in plain ones what stands behind a $ or begins like a command.
commands() {
	python3 - "$1" <<-'END'
		import re, sys
		inside, kind = False, ""
		for line in open(sys.argv[1]):
		    if line.startswith("```"):
		        inside, kind = not inside, line[3:].strip()
		        continue
		    if not inside or kind not in ("", "sh"):
		        continue
		    is_typed = kind == "sh" or line.startswith("$ ")
		    line = re.sub(r"\s+# .*", "", line.rstrip().removeprefix("$ "))
		    line = re.sub(r"^(\*|\*/\d+)( \*){4} ", "", line)
		    if is_typed or re.match(r"([A-Z_]+=\S+ +)*(sudo +)?(resil|make|curl|install|apt-get) |([A-Z_]+=\S+ +)+\S", line):
		        if line.strip():
		            print(line)
	END
}

# In the house: a server that answers as api.internal, programs named in the documents, and groups that have used it.
house() {
	peer server 127.0.0.1 answer
	mkdir -p "$dir/bin" "$dir/etc" "$dir/collector"
	ln -s "$build/resil" "$dir/bin/resil"
	printf '#!/bin/sh\nexec curl -sS http://127.0.0.1:%s/\n' "$server_port" >"$dir/bin/yourapp"
	chmod +x "$dir/bin/yourapp"
	git init -q --bare "$dir/x.git"
	git -C "$dir/x.git" update-server-info
	start files bare python3 -u -m http.server -d "$dir" -b 127.0.0.1 0
	wait_until file_has 'port [0-9]+' "$dir/files.out"
	files_port=$(sed -nE 's/.*port ([0-9]+).*/\1/p' "$dir/files.out")
	local group
	for group in trial nightly suite; do RESIL_GROUP=$group under curl -sS "http://127.0.0.1:$server_port/" >/dev/null; done
	RESIL_GROUP=GROUP RESIL_CONF=$dir/control.conf start one under "$bin/dial" -n 1000000 -i 50 127.0.0.1 "$server_port"
	wait_until test -S "$RESIL_RUNTIME_DIR/GROUP.sock"
	one_shown=$one_pid
}
# A command as it is said, for this house.
here() {
	sed -e "s|http://api.internal/x.git|http://127.0.0.1:$files_port/x.git|; s|http://api.internal/|http://127.0.0.1:$server_port/|; s|api.internal:80|127.0.0.1:$server_port|g; s|payments.internal:443|127.0.0.1:$server_port|g" \
		-e "s|\$XDG_RUNTIME_DIR/resil|$RESIL_RUNTIME_DIR|; s|/usr/local/lib/libresil.so|$shim|; s| /etc/| $dir/etc/|; s| conf/systemd| $root/conf/systemd|" \
		-e "s|/usr/local/bin/report.sh|yourapp|; s|/var/lib/prometheus/node-exporter|$dir/collector|; s|127.0.0.1:9469|127.0.0.1:0|; s|-p 1\$|-p $one_shown|"
}

runs() { # DOCUMENT
	printf '[resil]\ncontrol = on\n' >"$dir/control.conf"
	house
	cd "$dir"
	local line each patience n=0
	while IFS= read -r line; do
		n=$((n + 1))
		case $line in
		make\ *) # long ones, with steps of their own in .ci/run: the target is there
			run bare make -n -C "$root" $(cut -d' ' -f2 <<<"$line")
			assert_success
			continue
			;;
		apt-get\ * | journalctl\ *) continue ;; # the system's own
		esac
		while IFS= read -r each; do
			each=$(here <<<"$each")
			# What goes on until it is ended, and what ends when it is done.
			case $each in
			resil\ top | resil\ events\ -f | resil\ export\ --listen* | resil\ -v\ *) patience=2 ;;
			*) patience=100 ;;
			esac
			run env PATH="$dir/bin:$PATH" timeout -k 2 "$patience" bash -c "$each" 3>&-
			case $patience in
			2) [ "$status" = 124 ] || fail "it ended ($status): $each: $output" ;;
			*) [ "$status" = 0 ] || fail "code $status: $each: $output" ;;
			esac
		done < <(sed 's| / resil|\nresil|g' <<<"$line")
	done < <(commands "$1")
	echo "# $n commands" >&3
	[ "$n" -ge "$2" ] || fail "only $n commands found"
}
