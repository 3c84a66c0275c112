# shellcheck shell=bash disable=SC2016,SC2034
# test/lib/env.sh: what test/run, demo/run and bench/run share.  Packages, the
# build, an unprivileged user, a private work directory, ZooKeeper.
#
# For bash with "set -euo pipefail".  Every server listens on 127.0.0.1 only,
# and whatever a script starts or makes through here is gone when it ends,
# also by Ctrl-C or failure.

ZK_TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

# zk_root CMD...: run CMD as root.
zk_root()
{
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo "$@"
	else
		echo "zklock: this needs root, or sudo" >&2
		return 1
	fi
}

# zk_stands_for PACKAGE PATTERN: print the package that Debian's PACKAGE, which
# is empty, depends on; it has the version in its name.
zk_stands_for()
{
	apt-cache depends "$1" 2>/dev/null |
		sed -n "s/^ *Depends: \($2\)\$/\1/p" | head -n 1
}

# zk_default_pg_config: print the pg_config of the PostgreSQL that package
# "postgresql" stands for; or, if there is no list of packages, of the newest
# that is installed.
zk_default_pg_config()
{
	local package

	package=$(zk_stands_for postgresql 'postgresql-[0-9]*')
	if [ -n "$package" ]; then
		echo "/usr/lib/postgresql/${package#postgresql-}/bin/pg_config"
	else
		find /usr/lib/postgresql/*/bin/pg_config 2>/dev/null | sort -V | tail -n 1
	fi
}

# The PostgreSQL that is built for and tested is that of PG_CONFIG.  Where
# Debian would keep one that is not installed yet, its package is needed.
ZK_PG_CONFIG=$(command -v "${PG_CONFIG:-}" || echo "${PG_CONFIG:-$(zk_default_pg_config)}")
if [ -z "$ZK_PG_CONFIG" ]; then
	# a new system, without lists of packages
	zk_root apt-get -qq update
	ZK_PG_CONFIG=$(zk_default_pg_config)
fi
ZK_PG_PACKAGES=
case $ZK_PG_CONFIG in
	/usr/lib/postgresql/*/bin/pg_config)
		ZK_PG_PACKAGES=${ZK_PG_CONFIG#/usr/lib/postgresql/}
		ZK_PG_PACKAGES=${ZK_PG_PACKAGES%%/*}
		ZK_PG_PACKAGES="postgresql-$ZK_PG_PACKAGES postgresql-server-dev-$ZK_PG_PACKAGES"
		;;
esac

# Package "zookeeper" is only scripts around libzookeeper-java's server, and
# wants a desktop JRE.
ZK_JRE_PACKAGE=$(zk_stands_for default-jre-headless 'openjdk-[0-9]*-jre-headless')
ZK_JRE_PACKAGE=${ZK_JRE_PACKAGE:-default-jre-headless}
ZK_JDK_PACKAGE=${ZK_JRE_PACKAGE/-jre-/-jdk-}
ZK_BASE_PACKAGES="gcc make libc6-dev $ZK_PG_PACKAGES
	libzookeeper-mt-dev libzookeeper-java $ZK_JRE_PACKAGE"
ZK_TEST_PACKAGES="libcmocka-dev diffutils"
ZK_TAP_PACKAGES="git perl codespell libipc-run-perl python3-kazoo bzip2 \
	libcurator-recipes-java $ZK_JDK_PACKAGE \
	golang-go golang-github-samuel-go-zookeeper-dev pgbouncer patroni stunnel4 openssl \
	prometheus-postgres-exporter prometheus \
	python3-psycopg2 redis-server ruby-activerecord ruby-pg"

# A make above us must not steer the makes below.
unset MAKEFLAGS MFLAGS MAKELEVEL

# zk_need_packages PKG...: install those that are missing, from Debian.
# A PostgreSQL server is unpacked, with what it depends on: its installation would
# make an instance "main", and is left to the administrator.  No service must
# run, so dpkg is told so while it happens.
zk_need_packages()
{
	local pkg missing=()

	for pkg; do
		case $(dpkg-query -W -f '${db:Status-Status}' "$pkg" 2>/dev/null) in
			installed) ;;
			*)
				[ -x "/usr/lib/postgresql/${pkg#postgresql-}/bin/postgres" ] ||
					missing+=("$pkg")
				;;
		esac
	done
	[ ${#missing[@]} -gt 0 ] || return 0

	echo "installing packages: ${missing[*]}"
	zk_root bash -eu -s -- "${missing[@]}" <<-'EOF'
		export DEBIAN_FRONTEND=noninteractive
		# the JRE's own installation would leave /tmp/hsperfdata_root behind
		export JAVA_TOOL_OPTIONS=-XX:-UsePerfData
		dir=$(mktemp -d)
		policy=/usr/sbin/policy-rc.d
		ours=
		trap 'rm -rf "$dir" ${ours:+"$policy"}' EXIT
		trap 'exit 1' INT TERM HUP

		if [ ! -e $policy ]; then
			ours=yes
			printf '#!/bin/sh\nexit 101\n' >$policy
			chmod 755 $policy
		fi
		get()
		{
			timeout -k 20 1200 apt-get -y -o DPkg::Lock::Timeout=300 -o Acquire::Retries=5 \
				-o Acquire::http::Timeout=30 -o Acquire::https::Timeout=30 \
				"$@" >>"$dir/log" 2>&1 </dev/null
		}
		install()
		{
			local pkg packages=() servers=()

			for pkg; do
				case $pkg in
					postgresql-[0-9]*) servers+=("$pkg") ;;
					*) packages+=("$pkg") ;;
				esac
			done
			get install --no-install-recommends ${packages[@]+"${packages[@]}"} || return
			for pkg in ${servers[@]+"${servers[@]}"}; do
				(cd "$dir" && get download "$pkg") &&
					get satisfy --no-install-recommends "$(dpkg-deb -f "$dir/$pkg"_*.deb Depends)" &&
					dpkg-deb --fsys-tarfile "$dir/$pkg"_*.deb | tar -C / --keep-directory-symlink \
						-xf - ./usr/lib/postgresql ./usr/share/postgresql || return
			done
		}
		# Lists that are missing or old are fetched, and only then.
		for try in 1 2 3; do
			! install "$@" || exit 0
			sleep $(((try - 1) * 10))
			get update || continue
		done
		install "$@" || { tail -n 30 "$dir/log" >&2; echo "zklock: apt-get failed" >&2; exit 1; }
	EOF
}

# zk_find_postgres: set ZK_PGBIN and ZK_PGXS to where the PostgreSQL of
# PG_CONFIG has its programs and its PGXS.  To be called when the packages are
# there.
zk_find_postgres()
{
	ZK_PGBIN=$("$ZK_PG_CONFIG" --bindir)
	ZK_PGXS=$(dirname "$("$ZK_PG_CONFIG" --pgxs)")
	ZK_PGXS=${ZK_PGXS%/src/makefiles}
}

# zk_clean_other: remove what was built in the checkout for another PostgreSQL, of
# another version or compiled in another way, or with other settings of make, of
# which ZKLOCK_TEST_MAKE may have some, one in each line.
zk_clean_other()
{
	local stamp=$ZK_TOP/build/built_for built_for

	built_for=$("$ZK_PG_CONFIG"; printf '%s' "${ZKLOCK_TEST_MAKE:-}")
	if [ "$built_for" != "$(cat "$stamp" 2>/dev/null)" ]; then
		make -s -C "$ZK_TOP" PG_CONFIG="$ZK_PG_CONFIG" clean
		mkdir -p "$ZK_TOP/build"
		echo "$built_for" >"$stamp"
	fi
}

# zk_build: build the extension in the checkout, with no warning, and install
# it.
zk_build()
{
	local settings make=(make -s -C "$ZK_TOP" PG_CONFIG="$ZK_PG_CONFIG" COPT=-Werror)

	mapfile -t settings < <(printf '%s' "${ZKLOCK_TEST_MAKE:-}")
	make+=(${settings[@]+"${settings[@]}"})
	zk_clean_other
	"${make[@]}" -j"$(nproc)" all
	zk_root "${make[@]}" install
}

# zk_run_user: print the user that servers and tests run as; PostgreSQL
# refuses root.
zk_run_user()
{
	if [ "$(id -u)" -eq 0 ]; then echo postgres; else id -un; fi
}

# zk_as_user CMD...: run CMD as that user, in a clean environment.  That user
# may not be able to read the current directory: cd to the work directory
# first, in a subshell, if CMD minds.  Tests that run programs of another root
# (ZKLOCK_TEST_OTHER) may chroot.
zk_as_user()
{
	local cmd=(env -i HOME="${ZK_WORK:-/}" TMPDIR="${ZK_WORK:-/tmp}" LANG=C.UTF-8
		PATH="$ZK_PGBIN:/usr/bin:/bin" "$@")
	local caps=()

	[ -z "${ZKLOCK_TEST_OTHER:-}" ] ||
		caps=(--inh-caps=+sys_chroot --ambient-caps=+sys_chroot)
	if [ "$(id -u)" -eq 0 ]; then
		setpriv --reuid=postgres --regid=postgres --init-groups \
			${caps[@]+"${caps[@]}"} -- "${cmd[@]}"
	else
		"${cmd[@]}"
	fi
}

# zk_run CMD...: run CMD in a way that a signal to this script is obeyed at
# once, not when CMD is done.
zk_run()
{
	"$@" </dev/null &
	wait $!
}

# zk_cleanup_add CMD: have CMD evaluated when the script ends, however it
# ends; last added, first run.
ZK_CLEANUP=()
zk_cleanup_add()
{
	ZK_CLEANUP=("$1" ${ZK_CLEANUP[@]+"${ZK_CLEANUP[@]}"})
	trap zk_cleanup EXIT
	trap 'exit 129' HUP
	trap 'exit 130' INT
	trap 'exit 143' TERM
	trap 'trap "" PIPE; exit 141' PIPE
}

zk_cleanup()
{
	local status=$? cmd IFS=$' \t\n'

	trap '' HUP INT TERM PIPE
	set +e
	for cmd in "${ZK_CLEANUP[@]}"; do
		eval "$cmd"
	done
	exit $status
}

# zk_workdir NAME: make a private work directory of the unprivileged user and
# set ZK_WORK to it.  The checkout may be where that user cannot read, so all
# that servers and tests read is copied to here.  At the end the directory goes,
# and before it the processes that live in it.
zk_workdir()
{
	local base

	for base in "${TMPDIR:-/tmp}" /tmp; do
		# a socket's path has to fit into 107 bytes
		[ ${#base} -lt 40 ] && zk_as_user test -w "$base" && break
	done
	ZK_WORK=$(zk_as_user mktemp -d "$base/zklock-$1.XXXXXX")
	zk_cleanup_add "rm -rf '$ZK_WORK'"
	zk_cleanup_add "zk_kill_in '$ZK_WORK'"
}

# zk_copy_checkout DIR [FROM]: copy the checkout, or another one, into DIR of the
# work directory.
zk_copy_checkout()
{
	zk_as_user mkdir -p "$1"
	tar -C "${2:-$ZK_TOP}" --exclude=./.git --exclude=./build --exclude=./tmp_check -cf - . |
		zk_as_user tar -C "$1" --no-same-owner -xf -
}

# zk_test_install: set ZKLOCK_TEST_INSTALL to a private installation with this
# checkout.
zk_test_install()
{
	[ -z "${ZKLOCK_TEST_INSTALL:-}" ] || return 0
	zk_private_install test "$ZK_TOP"
	ZKLOCK_TEST_INSTALL=$ZK_INSTALLED
}

# zk_private_install NAME FROM [FLAGS]: build the extension of the checkout FROM with
# these flags of the compiler, by default with what only tests may have
# (-DZKLOCK_TEST_BUILD), and set ZK_INSTALLED to a private installation of PostgreSQL with it, in the work directory; what is installed in
# the system is not touched.  The server finds its lib and share from where its
# executable really is, so bin is copied; the rest are links.
zk_private_install()
{
	local root=$ZK_WORK/$1-install build=$ZK_WORK/$1-build
	local bin=$root$ZK_PGBIN
	local pkglib share
	local make=(make -s -C "$build" PG_CONFIG="$ZK_PG_CONFIG"
		COPT="-Werror ${3--DZKLOCK_TEST_BUILD}" with_llvm=no DESTDIR="$root")

	pkglib=$("$ZK_PG_CONFIG" --pkglibdir)
	share=$("$ZK_PG_CONFIG" --sharedir)
	zk_as_user mkdir -p "$root$pkglib" "$root$share/extension" "${bin%/*}"
	zk_as_user cp -r "$ZK_PGBIN" "$bin"
	zk_as_user ln -s "$pkglib"/* "$root$pkglib"
	zk_as_user ln -s "$share"/extension/* "$root$share/extension"
	(
		cd "$ZK_WORK"
		zk_as_user find "$share" -mindepth 1 -maxdepth 1 \
			! -name extension -exec ln -s -t "$root$share" {} +
		zk_as_user find "$root$pkglib" "$root$share/extension" -name 'zklock*' -delete
	)

	zk_copy_checkout "$build" "$2"
	zk_as_user "${make[@]}" clean
	zk_as_user "${make[@]}" -j"$(nproc)" all
	zk_as_user "${make[@]}" install
	ZK_INSTALLED=${bin%/*}
}

# zk_fetch_source PACKAGE: download a source package of the system's package
# archives into the current directory, which is empty, with lists of packages of
# its own.  An archive need not have each version that its lists tell of.
zk_fetch_source()
{
	local file version apt=(-qq -o Dir::Etc::SourceList=/dev/null
		-o Dir::Etc::SourceParts="$PWD/parts" -o Dir::State::Lists="$PWD/lists"
		-o Dir::Cache::SrcPkgCache= -o Dir::Cache::PkgCache=
		-o APT::Sandbox::User=root)

	mkdir -p parts lists/partial
	for file in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
		case $file in
			*.sources) sed 's/^Types:.*/Types: deb-src/' "$file" >"parts/${file##*/}" ;;
			*.list)
				[ ! -e "$file" ] ||
					sed -n 's/^deb /deb-src /p' "$file" >"parts/${file##*/}"
				;;
		esac
	done
	timeout 60 apt-get "${apt[@]}" update || return
	for version in $(apt-cache "${apt[@]}" showsrc "$1" | sed -n 's/^Version: //p' | sort -rV); do
		timeout 120 apt-get "${apt[@]}" source --download-only "$1=$version" && return
	done
	return 1
}

# zk_postgres_tests DIR: have PostgreSQL's own regression test of advisory locks,
# as it is, in DIR, from the source package of the server; it is kept in build/.
# False if it cannot be had.
zk_postgres_tests()
{
	local package=${ZK_PG_PACKAGES%% *} kept tmp

	[ -n "$package" ] || return 1
	kept=$ZK_TOP/build/$package-tests
	if [ ! -e "$kept/advisory_lock.out" ]; then
		tmp=$(mktemp -d)
		(
			cd "$tmp" && mkdir -p "$kept" && zk_fetch_source "$package" &&
				tar -xf "$package"_*.orig.tar.* --wildcards --transform='s,.*/,,' \
					'*/src/test/regress/sql/advisory_lock.sql' \
					'*/src/test/regress/expected/advisory_lock.out' &&
				mv advisory_lock.sql advisory_lock.out "$kept"
		) >"$tmp/log" 2>&1 || tail -n 3 "$tmp/log" >&2
		rm -rf "$tmp"
	fi
	[ -e "$kept/advisory_lock.out" ] || return 1
	zk_as_user mkdir -p "$1"
	tar -C "$kept" -cf - . | zk_as_user tar -C "$1" --no-same-owner -xf -
}

# zk_pids_in DIR: print the processes whose working directory is in DIR.  A
# person's shell, which has a terminal for its input, is none of ours.
zk_pids_in()
{
	local proc

	for proc in /proc/[0-9]*; do
		[ "$proc" != /proc/$$ ] || continue
		case $(readlink "$proc/cwd") in "$1" | "$1"/*) ;; *) continue ;; esac
		case $(readlink "$proc/fd/0") in /dev/pts/* | /dev/tty*) continue ;; esac
		echo "${proc#/proc/}"
	done 2>/dev/null
}

# zk_kill_in DIR: end every process that lives in DIR: politely (but for
# PostgreSQL that is SIGQUIT, its immediate shutdown), after 10 s not.
zk_kill_in()
{
	local pid signal try

	for try in {1..100}; do
		for pid in $(zk_pids_in "$1"); do
			signal=TERM
			[ "$(cat "/proc/$pid/comm" 2>/dev/null)" != postgres ] || signal=QUIT
			[ "$try" -lt 100 ] || signal=KILL
			kill -$signal "$pid" 2>/dev/null || true
			kill -CONT "$pid" 2>/dev/null || true
		done
		[ -n "$(zk_pids_in "$1")" ] || return 0
		sleep 0.1
	done
}

# zk_free_port: print a TCP port that nobody listens on, below the range from
# which the kernel takes ports for clients.
zk_free_port()
{
	local port

	while port=$((10200 + RANDOM % 22000)); do
		(: <>/dev/tcp/127.0.0.1/$port) 2>/dev/null || break
	done
	echo $port
}

# zk_fourlw PORT WORD: print what the ZooKeeper at PORT answers to a
# four-letter word.
zk_fourlw()
{
	(
		exec 9<>"/dev/tcp/127.0.0.1/$1" || exit
		printf '%s' "$2" >&9
		timeout 5 cat <&9
	) 2>/dev/null
}

# zk_start_zookeeper DIR: start a standalone ZooKeeper that keeps its data and
# log in DIR, wait until it serves, and set ZK_SERVERS to its address.
# ZK_JAVA_OPTIONS replaces the bound of its memory.
zk_start_zookeeper()
{
	local dir=$1 port pid
	port=$(zk_free_port)

	zk_as_user mkdir -p "$dir/data"
	zk_as_user tee "$dir/zoo.cfg" >/dev/null <<-EOF
		dataDir=$dir/data
		clientPort=$port
		clientPortAddress=127.0.0.1
		tickTime=1000
		minSessionTimeout=2000
		maxSessionTimeout=60000
		maxClientCnxns=0
		admin.enableServer=false
		4lw.commands.whitelist=*
	EOF
	zk_as_user bash -c 'cd "$1"; shift
		"$@" >zookeeper.log 2>&1 </dev/null & echo $! >zookeeper.pid' - "$dir" \
		java ${ZK_JAVA_OPTIONS:--Xmx256m} -XX:+UseSerialGC -XX:-UsePerfData \
		-Dorg.slf4j.simpleLogger.showDateTime=true \
		-cp /usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar \
		org.apache.zookeeper.server.quorum.QuorumPeerMain "$dir/zoo.cfg"
	pid=$(cat "$dir/zookeeper.pid")

	until [ "$(zk_fourlw "$port" ruok)" = imok ]; do
		if ! zk_alive "$pid"; then
			tail -n 20 "$dir/zookeeper.log" >&2
			echo "zklock: ZooKeeper did not start" >&2
			return 1
		fi
		sleep 0.1
	done
	ZK_SERVERS=127.0.0.1:$port
}

# zk_stop_zookeeper DIR: stop the one that lives in DIR.
zk_stop_zookeeper()
{
	local pid
	pid=$(cat "$1/zookeeper.pid")

	kill "$pid" 2>/dev/null || return 0
	while zk_alive "$pid"; do sleep 0.05; done
}

# zk_alive PID: is there such a process, and not as a zombie?
zk_alive()
{
	case $(cat "/proc/$1/stat" 2>/dev/null) in "" | *') Z '*) return 1 ;; esac
}
