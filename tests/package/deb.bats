#!/usr/bin/env bats
# The Debian package (`make deb-check`), in an overlay of this system: installed, run, replaced and removed under running programs.
load ../lib/common
bats_require_minimum_version 1.5.0

setup() {
	common_setup
	shim_part
	need_root "to install"
	deb=$(echo "$build"/deb/resil_*_amd64.deb)
	[ -e "$deb" ] || fail "$deb is not there: run make deb first"
}

@test "no script of the maintainer's, nothing in /etc but the example, and /etc/ld.so.preload is nobody's" {
	run dpkg-deb --ctrl-tarfile "$deb"
	run bash -c "dpkg-deb --ctrl-tarfile '$deb' | tar -t"
	refute_line --regexp '(pre|post)(inst|rm)|triggers'
	run dpkg-deb -c "$deb"
	refute_output --partial ld.so.preload
	[ "$(awk '$6 ~ "^./etc/." && $1 !~ /^d/ { print $6 }' <<<"$output")" = ./etc/resil/resil.conf.example ]
	for file in usr/bin/resil usr/lib/libresil.so usr/share/man/man1/resil.1.gz usr/share/man/man5/resil.conf.5.gz usr/share/man/man7/libresil.7.gz \
		usr/share/bash-completion/completions/resil usr/share/zsh/vendor-completions/_resil usr/share/fish/vendor_completions.d/resil.fish usr/share/doc/resil/examples/prometheus/resil-alerts.yml usr/share/doc/resil/cookbook.md; do
		assert_output --regexp " \./$file(\.gz)?"$'(\n|$)'
	done
	run dpkg-deb -f "$deb" Depends
	assert_output --regexp '^libc6 \(>= [0-9.]+\), libncursesw6 \(.*\), libtinfo6 \(.*\)$'
}

@test "installed, run, replaced and removed while a program runs" {
	peer server 127.0.0.1 refuse
	name=127.0.0.1:$server_port
	cat >"$dir/inside" <<-END
		set -e
		mount -t tmpfs over "$dir/over" && mkdir "$dir/over/upper" "$dir/over/work" "$dir/over/root"
		mount -t overlay over -o "lowerdir=/,upperdir=$dir/over/upper,workdir=$dir/over/work" "$dir/over/root"
		cd "$dir/over/root"
		rm -rf ./etc/resil ./usr/local/bin/resil ./usr/local/lib/libresil.so # what this system has of its own, in the overlay alone
		mount --bind /proc proc && mount --rbind /dev dev
		cp "$deb" "$bin/dial" tmp/
		cat >tmp/story <<-'STORY'
			set -e
			export RESIL_STATE_DIR=/tmp/state RESIL_RUNTIME_DIR=/tmp/run HOME=/root
			say() { echo "== \$*"; }
			before=\$(cat /etc/ld.so.preload 2>/dev/null || echo none)
			dpkg -i /tmp/*.deb >/tmp/dpkg.log 2>&1 || { cat /tmp/dpkg.log; exit 1; }
			say "installed \$(resil version)"
			for i in 1 2 3 4 5 6 7; do resil run -- /tmp/dial 127.0.0.1 $server_port || true; done
			resil status | cut -f1,2
			LD_PRELOAD=/usr/lib/libresil.so RESIL_GROUP=stays /tmp/dial -n 1000000 -i 20 127.0.0.1 $server_port >/tmp/out 2>&1 &
			pid=\$!
			until [ -s /tmp/out ]; do sleep 0.02; done
			dpkg -i /tmp/*.deb >/tmp/dpkg.log 2>&1
			lives() { n=\$(wc -l </tmp/out); until [ "\$(wc -l </tmp/out)" -gt \$((n + 3)) ]; do kill -0 \$pid; sleep 0.02; done; }
			lives
			say "replaced: \$(grep -c 'libresil.so (deleted)' /proc/\$pid/maps | sed 's/[1-9][0-9]*/old one kept/')"
			resil status -g stays | cut -f1,2
			dpkg -r resil >/tmp/dpkg.log 2>&1
			lives
			say "removed: \$(ls /usr/bin/resil /usr/lib/libresil.so 2>/dev/null | wc -l) files left"
			kill \$pid
			LD_PRELOAD=/usr/lib/libresil.so /bin/echo "starts without it" 2>/tmp/remark
			grep -c 'cannot be preloaded' /tmp/remark
			dpkg -P resil >/tmp/dpkg.log 2>&1
			say "purged: \$(find /etc/resil /usr/share/doc/resil /usr/share/man -path '*resil*' 2>/dev/null | wc -l) left"
			[ "\$before" = "\$(cat /etc/ld.so.preload 2>/dev/null || echo none)" ] && say "ld.so.preload as it was"
		STORY
		chroot . /bin/bash /tmp/story
	END
	mkdir "$dir/over"
	run timeout -k 2 120 unshare -m bash "$dir/inside"
	assert_success
	assert_line --regexp '^== installed resil [0-9.]+$'
	assert_line "$name	open"
	assert_line "== replaced: old one kept"
	assert_line "== removed: 0 files left"
	assert_line "starts without it"
	assert_line "== purged: 0 left"
	assert_line "== ld.so.preload as it was"
}
