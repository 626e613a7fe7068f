#!/usr/bin/env bats
# What goes to Prometheus: files, HTTP, the rules and the dashboard that stand on it.
load lib/common
bats_require_minimum_version 1.5.0

setup() {
	common_setup
	shim_part
}
teardown() {
	common_teardown
	[ -z "${theirs-}" ] || rm -rf "$theirs"
}
opened() {
	peer server 127.0.0.1 refuse
	name=127.0.0.1:$server_port
	local i
	for i in 1 2 3 4 5 6 7; do under "$bin/dial" 127.0.0.1 "$server_port" >/dev/null || true; done
}
exporting() { # ADDRESS [OPTIONS]
	start export bare "$build/resil" export --listen "$@"
	wait_until file_has 'http://' "$dir/export.err"
	url=$(sed -n 's/^resil: //p' "$dir/export.err")
}

@test "promtool takes the metrics, the alert rules, and what fires when" {
	opened
	resil metrics >"$dir/metrics"
	run promtool check metrics <"$dir/metrics"
	assert_success
	run promtool check rules "$root/conf/prometheus/resil-alerts.yml"
	assert_success
	run promtool test rules "$root/conf/prometheus/resil-alerts-test.yml"
	assert_success
}

@test "the dashboard is JSON, and it and the rules name metrics and labels that there are" {
	opened
	run python3 - "$root" <<-'END'
		import json, re, subprocess, sys
		root = sys.argv[1]
		text = open(root + "/src/control/metrics.c").read()
		known = set(re.findall(r'"(resil_[a-z_]+)"', text)) | {"resil_config_generation", "resil_build_info"}
		board = json.load(open(root + "/conf/grafana/resil.json"))
		exprs = [t["expr"] for p in board["panels"] for t in p["targets"]]
		exprs += [v["definition"] for v in board["templating"]["list"] if "definition" in v]
		exprs += [a["expr"] for a in board["annotations"]["list"]]
		exprs += re.findall(r"expr: (.*(?:\n {10}.*)*)", open(root + "/conf/prometheus/resil-alerts.yml").read())
		assert len(exprs) > 15, len(exprs)
		for e in exprs:
		    names = re.findall(r"resil_[a-z_]+", e)
		    assert names, e
		    for n in names:
		        assert re.sub("_(bucket|sum|count)$", "", n) in known, n
		places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in board["panels"]]
		assert len(set(places)) == len(places) and len({p["id"] for p in board["panels"]}) == len(places)
	END
	assert_success
}

@test "a dashboard's and a rule's expressions are PromQL" {
	# As rules, so that promtool parses them; Grafana's own variables stand for values.
	python3 - "$root" >"$dir/rules.yml" <<-'END'
		import json, sys
		board = json.load(open(sys.argv[1] + "/conf/grafana/resil.json"))
		exprs = [t["expr"] for p in board["panels"] for t in p["targets"]] + [a["expr"] for a in board["annotations"]["list"]]
		print("groups: [{name: board, rules: [")
		for i, e in enumerate(exprs):
		    print('{record: "board:%d", expr: %s},' % (i, json.dumps(e.replace("$__rate_interval", "5m"))))
		print("]}]")
	END
	run promtool check rules "$dir/rules.yml"
	assert_success
	assert_output --regexp 'SUCCESS: 1[0-9] rules found'
}

@test "--textfile: a whole file for others to read, renamed into place; again with --every" {
	opened
	mkdir "$dir/collector"
	(umask 077 && resil export --textfile "$dir/collector")
	assert_equal "$(stat -c %a "$dir/collector/resil.prom")" 644
	assert_equal "$(ls -A "$dir/collector")" resil.prom
	run promtool check metrics <"$dir/collector/resil.prom"
	assert_success
	grep -q "^resil_circuit_state{group=\"dial\",destination=\"$name\"} 2$" "$dir/collector/resil.prom"
	first=$(stat -c %i "$dir/collector/resil.prom")
	start export bare "$build/resil" export --textfile "$dir/collector" --every 1s
	resil reset "$name"
	wait_until file_has "^resil_circuit_state\{.*\} 0$" "$dir/collector/resil.prom"
	[ "$(stat -c %i "$dir/collector/resil.prom")" != "$first" ] || fail "written over in place"
	run -1 resil export --textfile "$dir/nowhere"
	assert_output --partial "$dir/nowhere/resil.prom: No such file or directory"
}

@test "--textfile: where the disk is full the last good file stays" {
	need_root "to mount"
	unshare -m true 2>/dev/null || skip "no mount namespaces here"
	opened
	mkdir "$dir/small"
	run unshare -m bash -c "mount -t tmpfs -o size=8k small '$dir/small' && echo old >'$dir/small/resil.prom' && '$build/resil' export --textfile '$dir/small'
		echo code \$?; cat '$dir/small/resil.prom'; ls -A '$dir/small'"
	assert_line --partial "No space left on device"
	assert_line "code 1"
	assert_line old
	refute_line --regexp '^\.resil'
}

@test "--listen: GET /metrics for all groups, HEAD, 404, 405; a term ends it with 0" {
	opened
	RESIL_GROUP=other under "$bin/dial" 127.0.0.1 1 || true
	exporting 127.0.0.1:0
	run curl -sSf "$url"
	assert_success
	assert_line "resil_circuit_state{group=\"dial\",destination=\"$name\"} 2"
	assert_line 'resil_circuit_state{group="other",destination="127.0.0.1:1"} 0'
	curl -sSf "$url" | promtool check metrics
	run curl -sSfI "$url"
	assert_line --partial 'text/plain; version=0.0.4'
	run curl -sS -o "$dir/body" -w '%{http_code}' "${url%metrics}"
	assert_output 404
	run curl -sS -o "$dir/body" -w '%{http_code}' -d x=1 "$url"
	assert_output 405
	kill "$export_pid"
	wait "$export_pid"
}

@test "--listen: silent, slow and hostile clients keep nobody waiting and end nothing (an untrusted peer)" {
	opened
	exporting 127.0.0.1:0
	port=${url##*:}
	port=${port%/metrics}
	python3 - "$port" <<-'END'
		import os, socket, sys, urllib.request
		port = int(sys.argv[1])
		quiet = [socket.create_connection(("127.0.0.1", port)) for _ in range(25)]
		for s in quiet[:10]:
		    s.sendall(b"GET /metr")
		for junk in (os.urandom(3000) + b"\n\n", b"A" * 9000, b"GET " + b"/" * 4000, b"\r\n\r\n", b"GET \r\n\r\n", b"HEAD\r\n\r\n", b"\0\n\n"):
		    s = socket.create_connection(("127.0.0.1", port))
		    try:
		        s.sendall(junk)
		        s.shutdown(socket.SHUT_WR)
		        while s.recv(65536):
		            pass
		    except OSError:
		        pass
		# One that asks and does not read.
		deaf = socket.create_connection(("127.0.0.1", port))
		deaf.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
		text = urllib.request.urlopen("http://127.0.0.1:%d/metrics" % port, timeout=5).read()
		assert b"resil_circuit_state" in text
	END
	kill -0 "$export_pid"
}

@test "--all-users: users' groups of one name are series of their own" {
	need_root "to see every user's groups"
	user=$((60000 + BASHPID % 5000)) theirs=/dev/shm/resil-$user
	[ ! -e "$theirs" ] || skip "$theirs is in use"
	RESIL_GROUP=shared-$user RESIL_STATE_DIR=$theirs under "$bin/dial" 127.0.0.1 1 || true
	chown -R "$user" "$theirs"
	run bare env -u RESIL_STATE_DIR "$build/resil" metrics --all-users -g "shared-$user"
	assert_line "resil_circuit_state{group=\"shared-$user\",user=\"$user\",destination=\"127.0.0.1:1\"} 0"
	run promtool check metrics <<<"$output"
	assert_success
}

@test "wrong words of export" {
	run -2 resil export
	run -2 resil export --textfile a --listen b
	run -2 resil export --listen nowhere
	assert_line --index 0 "resil export: 'nowhere' is no address; 127.0.0.1:9469, [::1]:9469 and :9469 are"
	run -2 resil export --listen example.org:80
	run -2 resil export --listen 127.0.0.1:99999
	run -2 resil export --textfile "$dir" --every 5
	run -2 resil export --listen 127.0.0.1:0 --json
}
