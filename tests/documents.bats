#!/usr/bin/env bats
# README and manuals name only what there is: every command in a block of README.md is run here (cookbook.bats: of doc/cookbook.md).
load lib/common
load lib/documents
bats_require_minimum_version 1.5.0

setup() {
	common_setup
	shim_part
}

@test "every command of README.md does what it should" { runs "$root/README.md" 15; }

@test "a command that a document gains is found and run, wherever it stands; one that cannot work fails the test" {
	local each
	for each in 'sh|nowhere --now' 'sh|resil status --nowhere' '|resil status --nowhere' '|$ resil status --nowhere' '|curl --nowhere http://api.internal/' \
		'|make nowhere' '|RESIL_SEED=1 resil nowhere' '|$ nowhere --now' '|sudo resil nowhere'; do
		printf '# A\n\n```%s\nresil version\n```\n\n```%s\n%s\n```\n' "" "${each%%|*}" "${each#*|}" >"$dir/document.md"
		assert_equal "$(commands "$dir/document.md" | wc -l) $each" "2 $each"
		run -1 runs_bare "$dir/document.md"
		assert_output --partial "code "
	done
	printf '# A\n\n```\nresil version\n```\n' >"$dir/document.md"
	runs_bare "$dir/document.md"
}
# As `runs`, without a house: for commands that need nobody in it.
runs_bare() {
	house() { mkdir -p "$dir/bin" && ln -sf "$build/resil" "$dir/bin/resil" && one_shown=1 server_port=1 files_port=1; }
	# In `run` a failure ends nothing.
	fail() { echo "$*" && exit 1; }
	assert_success() { [ "$status" = 0 ] || fail "code $status: $output"; }
	(runs "$1" 1)
}

@test "verbs, options and files that the documents name are there" {
	python3 - "$root" "$build/resil" <<-'END'
		import os, re, subprocess, sys
		root, resil = sys.argv[1:]
		help_of = {}
		for line in subprocess.run([resil, "complete", "--", ""], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines():
		    verb = line.split("\t")[0]
		    help_of[verb] = subprocess.run([resil, "help", verb], stdout=subprocess.PIPE, text=True, check=True).stdout
		found = 0
		for name in ("README.md", "doc/cookbook.md", "SECURITY.md", "CHANGELOG.md", "conf/container/pod.yaml", "conf/systemd/resil.conf", "conf/prometheus/resil-alerts.yml"):
		    text = open(root + "/" + name).read()
		    for verb, rest in re.findall(r"(?<![-\w/.])resil ([a-z]+)\b([^\n\x60#|]*)", "\n".join(re.findall(r"\x60(resil [^\x60]+)\x60", text)) + "\n" + text if name.endswith(".md") else text):
		        if not name.endswith(".md") or "\x60resil " + verb in text:
		            if verb not in help_of:
		                assert not name.endswith(".md"), (name, verb)
		                continue
		            found += 1
		            for option in re.findall(r" (--[a-z-]+)", rest.split(" -- ")[0]):
		                assert option in help_of[verb], (name, verb, option)
		    if name.endswith(".md"):
		        for path in re.findall(r"\x60((?:conf|doc|tests|scripts|src)/[\w./*-]+)\x60", text):
		            import glob
		            assert glob.glob(root + "/" + path), (name, path)
		assert found > 20, found
		# The manual resil(1) has a section for each verb.
		manual = open(root + "/doc/resil.1").read()
		sections = " ".join(re.findall(r"^\.SS (.*)", manual, re.M))
		for verb in help_of:
		    assert re.search(r"\b%s\b" % verb, sections), verb
	END
}

@test "the manuals are set without a complaint" {
	for page in resil.1 resil.conf.5 libresil.7; do
		run bare man --warnings -E UTF-8 -l "$root/doc/$page"
		assert_success
		refute_output --partial "warning:"
		run mandoc -Tlint -W warning "$root/doc/$page"
		assert_output ""
	done
}

@test "the systemd drop-in: its environment guards a unit's program, with the unit's name as the group" {
	peer server 127.0.0.1 answer
	mkdir "$dir/t"
	mapfile -t env < <(sed -n 's/^Environment=//p' "$root/conf/systemd/resil.conf" | sed "s|/usr/local/lib/libresil.so|$shim|; s|%N|billing|g; s|%t|$dir/t|g")
	[ "${#env[@]}" = 4 ]
	bare env "${env[@]}" RESIL_SET= curl -sS "http://127.0.0.1:$server_port/" >/dev/null
	assert_equal "$(destination "127.0.0.1:$server_port" state -g billing)" closed
	[ -z "$(grep -vE '^(#.*|\[Service\]|[A-Z][A-Za-z]+=.+|)$' "$root/conf/systemd/resil.conf")" ]
}

@test "the container recipe: both files in one folder are all there is, and find each other" {
	peer server 127.0.0.1 answer
	mkdir "$dir/shared"
	cp "$build/libresil.so" "$build/resil" "$dir/shared/"
	run bare "$dir/shared/resil" run -- sh -c 'echo "$LD_PRELOAD"'
	assert_output "$dir/shared/libresil.so"
	# Nothing but glibc is asked for.
	for file in libresil.so resil; do
		run bash -c "readelf -d '$dir/shared/$file' | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | grep -vE '^(libc|ld-linux-x86-64|libpthread|libdl)\.so\.[0-9]+$'"
		assert_output ""
	done
	# The environment that pod.yaml gives.
	mapfile -t env < <(sed -nE 's/.*\{name: ([A-Z_]+), value: ([^}]+)\}/\1=\2/p' "$root/conf/container/pod.yaml" | sed "s|/resil/libresil.so|$dir/shared/libresil.so|; s|/run-resil|$dir/shared|")
	[ "${#env[@]}" = 4 ]
	bare env "${env[@]}" curl -sS "http://127.0.0.1:$server_port/" >/dev/null
	assert_equal "$(destination "127.0.0.1:$server_port" state -g app)" closed
}
