# shellcheck shell=bash
# test/lib/failures.sh: what test/run says of tests that failed, and which TAP
# files it runs once more.  All by the logs of the runners in $ZK_WORK, and those
# of TAP files and servers in $ZK_WORK/tree/tmp_check/log.

# What a server or a sanitizer says of its end.
ZK_CRASHES='PANIC|TRAP|terminated by signal|AddressSanitizer|LeakSanitizer|runtime error:'

# What else tells why a session or process ended.
ZK_ENDS='FATAL|exited with exit code|abnormal|restarting'

# What the end of a test says of its servers.
ZK_STOPPING='^### |^# Running:|^waiting for server|^server stopped|^# No postmaster PID'

# The names of tests whose failure is never an accident.
ZK_SAFETY='overlap|two at a time|at once|token|lost|committed|nothing is left|is left|no lock|crashed|same session'

# failed_tap_files: print test/t/NAME.pl of those that failed.
failed_tap_files()
{
	sed -n 's,^\(test/t/[^ ]*\.pl\) *(Wstat: .*,\1,p' "$ZK_WORK/tap.log" | sort -u
}

# tap_log FILE, server_logs FILE: print the names of its log, and its servers'.
tap_log() { echo "$ZK_WORK/tree/tmp_check/log/regress_log_$(basename "$1" .pl)"; }
server_logs() { ls "$ZK_WORK/tree/tmp_check/log/$(basename "$1" .pl)_"*.log 2>/dev/null || :; }

# failed_checks FILE: print each test of a TAP file that failed, with what it said.
failed_checks()
{
	local log
	log=$(tap_log "$1")

	[ ! -e "$log" ] ||
		{ grep -a -B 2 -A 12 -E '(^|[])] )not ok ' "$log" || :; } | cut -c 1-300 | sed -n 1,40p
}

# may_try_again FILE: may the failure of this TAP file have been an accident?  Not
# where test/README.md says so, something has crashed, or a test of safety failed.
may_try_again()
{
	local number log logs
	number=$(basename "$1" | cut -c 1-3)

	! sed -n 's/^    never tried again: //p' "$ZK_TOP/test/README.md" | grep -qw "$number" || return 1
	[ ! -e "$ZK_WORK/tree/tmp_check/log/hung_$(basename "$1" .pl).log" ] || return 1
	log=$(tap_log "$1")
	mapfile -t logs < <(server_logs "$1")
	! grep -qaE "$ZK_CRASHES" "$log" ${logs[@]+"${logs[@]}"} || return 1
	! grep -aE '(^|[])] )not ok ' "$log" | grep -qE "$ZK_SAFETY"
}

# tap_failures: of each TAP file that failed, what has failed, how it ended, and
# what its servers say of processes that ended.
tap_failures()
{
	local file log

	for file in $(failed_tap_files); do
		echo "== $file"
		failed_checks "$file"
		log=$(tap_log "$file")
		[ ! -e "$log" ] || { echo "-- its end:"; grep -avE "$ZK_STOPPING" "$log" | tail -n 6; }
		for log in $(server_logs "$file"); do
			{ grep -aE "$ZK_CRASHES|$ZK_ENDS" "$log" || :; } |
				sed '/logical replication launcher/d' | tail -n 5 | sed "1i\\
-- ${log##*/}:"
		done
	done
}

# failures KIND: what those who see only the last lines of all must know.
failures()
{
	local name
	local -A lines=([unit]=20 [unit-asan]=20 [sim]=12 [regress]=25 [isolation]=25 [tap]=60)

	case $1 in
		unit | unit-asan)
			grep -a -B 4 -E '^\[  (FAILED|ERROR) |^make.*Error|: error:|AddressSanitizer|runtime error:' \
				"$ZK_WORK/$1.log" || tail -n 20 "$ZK_WORK/$1.log"
			;;
		sim) grep -aE '^sim: (seed|the schedule|again|[0-9]+ failures)|error:' "$ZK_WORK/sim.log" || tail -n 20 "$ZK_WORK/sim.log" ;;
		regress | isolation)
			grep -aE '^(not ok|test .*FAILED)' "$ZK_WORK/$1.log" || tail -n 20 "$ZK_WORK/$1.log"
			name=$ZK_WORK/tree/regression.diffs
			[ "$1" = regress ] || name=$ZK_WORK/tree/output_iso/regression.diffs
			[ ! -e "$name" ] || head -n 60 "$name"
			;;
		tap) tap_failures ;;
	esac | cut -c 1-300 | sed -n "1,${lines[$1]}s/^/    /p"
	for name in "$ZK_WORK"/tree/tmp_check/log/hung_*.log; do
		[ ! -e "$name" ] || { echo "    == ${name##*/}"; head -n 25 "$name" | sed 's/^/    /'; }
	done
}
