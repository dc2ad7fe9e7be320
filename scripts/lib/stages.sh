# Sourced by scripts/test and scripts/soak: runs one stage, keeps the counts, prints the closing lines.
# shellcheck shell=bash

passed=0 failed=0 skipped=0
failures=()
skips=()
repeated=()
last_words=$(mktemp "${TMPDIR:-/tmp}/carve-test.XXXXXX")

# Not under ASan: RTLD_DEEPBIND, which its runtime forbids, and figures of memory and time, which it multiplies.
not_under_asan='NoWayOfLoadingLeadsPastIt|the_agent_is_small|second_line|does_not_fill_the_memory|idle_watches_cost_little'
# Under ASan in scripts/soak only: minutes of what scripts/test runs without it, over code that shorter tests run with it.
slow_under_asan='journal_kills|kill_points|isolation_share|isolation_trace|attacks/table|shares_and_limits_hold'

# ctest_stage PRESET SELECTION: all tests of build/PRESET that SELECTION (ctest's own flags) picks.
#
# Tests of shares in real time can miss a bound when something else takes the machine's two cores for a moment: a
# test that fails may run twice more, and is named in the closing lines when it needed that.
ctest_stage() {
  local preset=$1 selection=$2 report log
  report=$CARVE_ROOT/build/$preset/results.xml
  log=$CARVE_ROOT/build/$preset/test.log
  say "testing ($preset)"
  rm -f "$report"
  # shellcheck disable=SC2086
  (cd "$CARVE_ROOT/build/$preset" &&
   ctest --output-on-failure --timeout 600 -j "$(nproc)" --repeat until-pass:3 --output-junit "$report" $selection) |
    tee "$log"
  [ -s "$report" ] || { failed=$((failed + 1)); failures+=("$preset: no test report"); return; }
  while IFS=$'\t' read -r state name reason; do
    case "$state" in
      run) passed=$((passed + 1)) ;;
      fail) failed=$((failed + 1)); failures+=("$preset: $name")
            { say "the end of what $preset: $name printed"; python3 "$CARVE_ROOT/tools/junit_rows" --output "$name" "$report" | tail -30
            } >>"$last_words" ;;
      *) skipped=$((skipped + 1)); skips+=("$preset: $name: $reason") ;;
    esac
  done < <(python3 "$CARVE_ROOT/tools/junit_rows" "$report")
  while read -r name; do repeated+=("$preset: $name"); done < <(
    awk '/Test +#[0-9]+: /{n=$0; sub(/.*Test +#[0-9]+: /,"",n); sub(/ \.\.\..*/,"",n)
         if (/Failed|Timeout|SEGFAULT|Abort/) bad[n]=1; else if (/Passed/ && bad[n]) print n}' "$log")
}

# bench_stage: the cost benchmark against 1.5 times its budgets (design: budgets), once more when noisy.
bench_stage() {
  local bench=$CARVE_ROOT/build/release/bin/carve-bench-calls
  say "measuring costs (release build, this machine)"
  if [ ! -x "$bench" ]; then
    failed=$((failed + 1)); failures+=("bench: carve-bench-calls was not built")
  elif "$bench" --check; then
    passed=$((passed + 1))
  elif say "beyond a budget: measuring once more, the machine may be busy"; "$bench" --check; then
    passed=$((passed + 1)); repeated+=("bench: carve-bench-calls --check")
  else
    failed=$((failed + 1)); failures+=("bench: carve-bench-calls --check")
  fi
}

# summary SECONDS: the closing lines; exits non-zero when a test failed or none ran. What failed says once more why: a
# log of which only the end is kept must be enough to begin with.
summary() {
  echo
  [ ! -s "$last_words" ] || cat "$last_words"
  rm -f "$last_words"
  [ ${#skips[@]} -eq 0 ] || { echo "skipped, and why:"; printf '  %s\n' "${skips[@]}"; }
  [ ${#repeated[@]} -eq 0 ] || { echo "passed only when run again:"; printf '  %s\n' "${repeated[@]}"; }
  [ ${#failures[@]} -eq 0 ] || { echo "failed:"; printf '  %s\n' "${failures[@]}"; }
  echo "took $(($1 / 60)) min $(($1 % 60)) s on $(nproc) cores"
  echo "$passed passed, $failed failed, $skipped skipped"
  [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}
