# Sourced by scripts/test: builds what a later stage needs, and runs its tests, in the processor time that other tests
# leave idle.
# shellcheck shell=bash

background_pid= background_group= background_log=

# idle_group: creates a cgroup that the scheduler serves only when the processor is otherwise idle, and prints its
# folder. Processes there do not disturb tests that measure time. Fails where the machine has none (cgroup v1 or v2 with
# cpu.idle: Linux 5.15).
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

# begin_background WHAT COMMAND…: runs the command or function in an idle cgroup, in the background. Without such a cgroup
# it does nothing, and the stage that needs the result makes it itself.
begin_background() {
  local what=$1
  shift
  background_group=$(idle_group) || return 0
  background_log=$(mktemp "${TMPDIR:-/tmp}/carve-beside.XXXXXX")
  say "$what in the processor time that the tests leave idle: $background_log"
  set -m  # a process group of its own, which cancel_background ends
  { echo "$BASHPID" >"$background_group/cgroup.procs" && "$@"; } </dev/null >"$background_log" 2>&1 &
  background_pid=$!
  set +m
}

# await_background: gives the background command its ordinary weight and waits for it. A failure is not reported here:
# the stage that needs the result runs the same command and fails with its error.
await_background() {
  [ -n "$background_pid" ] || return 0
  echo 0 2>/dev/null >"$background_group/cpu.idle"
  wait "$background_pid"
  background_pid=
  rmdir "$background_group"
  rm -f "$background_log"
}

# cancel_background: ends the background command with all its processes; for the exit trap.
cancel_background() {
  local tries
  [ -n "$background_pid" ] || return 0
  kill -- "-$background_pid" 2>/dev/null
  wait "$background_pid" 2>/dev/null
  for tries in {1..50}; do  # a process leaves its cgroup some time after it got the signal
    rmdir "$background_group" 2>/dev/null && return 0
    [ "$tries" -ne 25 ] || kill -KILL -- "-$background_pid" 2>/dev/null
    sleep 0.1
  done
}
