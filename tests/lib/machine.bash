# A bare Debian in a folder (debootstrap), for tests that begin where a person begins. Load it after `lib/common`. Root, a mirror, minutes.
#
# MACHINE_TAR   what debootstrap has made, kept for the next time (build/machine-SUITE.tar)

# machine_make FOLDER [PACKAGE]...: a machine there, with the source in /project and packages as its owner would have them by now; in $machine.
machine_make() {
	machine=$1
	shift
	need_root "to make a machine"
	command -v debootstrap >/dev/null || skip "debootstrap is not installed"
	unshare -m -p -f true 2>/dev/null || skip "mounts and processes of its own are not to be had here"
	local suite mirror tar
	suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
	tar=${MACHINE_TAR:-$build/machine-$suite.tar}
	mkdir "$machine"
	# Users of it are not root.
	local above=$machine
	while above=$(dirname "$above") && [ "$above" != / ] && [ "$above" != /tmp ]; do chmod a+x "$above"; done
	if [ ! -s "$tar" ]; then
		mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | head -n 1)
		debootstrap --variant=minbase "$suite" "$machine" $mirror >"$machine.log" 2>&1 || fail "$(tail "$machine.log")"
		tar -C "$machine" -cf "$tar.$$" . && mv "$tar.$$" "$tar"
	else
		tar -C "$machine" -xf "$tar"
	fi
	rm -rf "$machine"/etc/apt/sources.list "$machine"/etc/apt/sources.list.d
	cp -a /etc/apt/sources.list.d /etc/apt/apt.conf.d "$machine/etc/apt/"
	[ ! -e /etc/apt/sources.list ] || cp /etc/apt/sources.list "$machine/etc/apt/"
	rm -f "$machine"/etc/apt/apt.conf.d/*{packagekit,appstream,listchanges}*
	cp -L --remove-destination /etc/resolv.conf /etc/hosts "$machine/etc/"
	# No service begins by being installed, as in any chroot.
	printf '#!/bin/sh\nexit 101\n' >"$machine/usr/sbin/policy-rc.d"
	chmod 755 "$machine/usr/sbin/policy-rc.d"
	mkdir "$machine/project"
	tar -C "$root" -c --exclude=./build --exclude='./build-*' --exclude=./.git . | tar -C "$machine/project" -x
	[ $# = 0 ] || machine_runs <<<"apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install $*" >"$machine.log" 2>&1 ||
		fail "$(tail "$machine.log")"
}

# machine_runs: the bash script of standard input in it, in /project; what it started ends with it.
machine_runs() {
	cat >"$machine/story"
	timeout -k 2 1000 unshare -m -p -f --kill-child bash -ec '
		cd "$1"
		mount -t proc proc proc
		mount --rbind /dev dev
		mount -t tmpfs shm dev/shm
		mount -t tmpfs run run
		exec chroot . /usr/bin/env -i HOME=/root TERM=dumb LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
			bash -c "cd /project && set -euo pipefail && . /story"' machine "$machine" 3>&- </dev/null
}

# A chroot has no systemd: this in its place starts a unit's program by its files, with the environment, the user and the directories
# that they name (what a drop-in of ours uses, no more).
machine_systemctl() {
	cat >"$machine/usr/local/sbin/systemctl" <<-'END'
		#!/bin/bash
		set -eu
		case $1 in
		daemon-reload) exit ;;
		restart) ;;
		*) echo "no $1 here" >&2; exit 1 ;;
		esac
		unit=${2%.service}
		shopt -s nullglob
		for file in /lib/systemd/system/$unit.service /etc/systemd/system/$unit.service; do [ ! -e "$file" ] || files=("$file"); done
		files+=(/etc/systemd/system/$unit.service.d/*.conf)
		said() { sed -n "s/^$1=//p" "${files[@]}" | sed "s|%N|$unit|g; s|%t|/run|g"; }
		mapfile -t environment < <(said Environment)
		user=$(said User | tail -n 1) command=$(said ExecStart | tail -n 1)
		for directory in $(said RuntimeDirectory); do install -d -m 700 ${user:+-o "$user"} "/run/$directory"; done
		if [ -e "/run/$unit.pid" ] && kill "$(cat "/run/$unit.pid")" 2>/dev/null; then
			while kill -0 "$(cat "/run/$unit.pid")" 2>/dev/null; do sleep 0.05; done
		fi
		setsid env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "${environment[@]}" ${user:+setpriv --reuid "$user" --regid "$user" --init-groups} \
			$command >"/var/log/$unit.log" 2>&1 </dev/null &
		echo $! >"/run/$unit.pid"
	END
	chmod 755 "$machine/usr/local/sbin/systemctl"
}
