# Sourced by scripts/test: builds what a later stage needs while tests run, in the processor time that the tests leave.
# shellcheck shell=bash

beside_pid= beside_group= beside_log=

# idle_group: makes a cgroup that the scheduler serves when nothing else wants the processor, and prints its folder. Tests
# that measure time do not notice what runs there. Fails where the machine has none (cgroup v1 or v2 with cpu.idle: Linux 5.15).
idle_group() {
  local parent group
  for parent in /sys/fs/cgroup/cpu /sys/fs/cgroup; do
    group=$parent/carve-build-$$
    [ -w "$parent" ] && mkdir "$group" 2>/dev/null || continue
    if { echo 1 >"$group/cpu.idle"; } 2>/dev/null; then echo "$group"; return 0; fi
    rmdir "$group"
  done
  return 1
}

# begin_beside COMMAND…: runs the command in an idle cgroup, in the background. Without such a cgroup it does nothing, and
# the stage that needs the result builds it itself.
begin_beside() {
  beside_group=$(idle_group) || return 0
  beside_log=$(mktemp "${TMPDIR:-/tmp}/carve-beside.XXXXXX")
  say "building in the time that the tests leave: $beside_log"
  setsid bash -c 'echo $$ >"$0/cgroup.procs" && "$@"' "$beside_group" "$@" >"$beside_log" 2>&1 &
  beside_pid=$!
}

# end_beside: gives what runs in the background its ordinary weight and waits for it. A failure is not reported here: the
# stage that needs the result runs the same command and fails with its words.
end_beside() {
  [ -n "$beside_pid" ] || return 0
  echo 0 2>/dev/null >"$beside_group/cpu.idle"
  wait "$beside_pid"
  beside_pid=
  rmdir "$beside_group"
  rm -f "$beside_log"
}

# drop_beside: ends what runs in the background; for the exit trap.
drop_beside() {
  [ -n "$beside_pid" ] || return 0
  kill -- "-$beside_pid" 2>/dev/null
  wait "$beside_pid" 2>/dev/null
  rmdir "$beside_group" 2>/dev/null
}
