# Sourced by scripts/test and scripts/soak: runs one stage, keeps the counts, prints the closing lines.
# shellcheck shell=bash

passed=0 failed=0 skipped=0
failures=()
skips=()
repeated=()
seeds=()
late=()  # "PRESET<tab>NAME" of tests in real time that failed at each try, until late_tries
last_words=$(mktemp "${TMPDIR:-/tmp}/carve-test.XXXXXX")
convictions=$(mktemp "${TMPDIR:-/tmp}/carve-convictions.XXXXXX")

# No processor is slow enough to excuse a failure here: rooms without real time, and what reads the tree.
pure='^(core|codec|lease|app)_|^tools/|_is_current$'
# Not under ASan: RTLD_DEEPBIND, which its runtime forbids, and figures of memory and time, which it multiplies.
not_under_asan='NoWayOfLoadingLeadsPastIt|the_agent_is_small|second_line|does_not_fill_the_memory|idle_watches_cost_little|integration/demo'
# Under ASan in scripts/soak only: minutes of what scripts/test runs without it, over code that shorter tests run with it.
slow_under_asan='journal_kills|kill_points|isolation_share|isolation_trace|attacks/table|shares_and_limits_hold'

# run_ctest PRESET REPORT FLAGS…
run_ctest() {
  local preset=$1 report=$2
  shift 2
  rm -f "$report"
  (cd "$CARVE_ROOT/build/$preset" &&
   CARVE_CONVICTIONS=$convictions ctest --output-on-failure --timeout 600 --output-junit "$report" "$@")
}

# ctest_stage PRESET TRIES SELECTION: all tests of build/PRESET that SELECTION (ctest's own flags) picks.
#
# TRIES: once; three-times, every test; again. Tests in real time (shares, rings, real processes) can miss a bound when
# something else takes the machine's two cores for a moment: `again` lets one that fails run twice more, and once at the
# end (late_tries), and the closing lines name it. That is no way out for what must never happen: what the rings'
# independent checkers find wrong (RingTest.acquit), and every race that ThreadSanitizer reports, fails the run whatever a
# later try says.
ctest_stage() {
  local preset=$1 tries=$2 selection=$3 report log repeat
  case "$tries" in
    once) repeat= ;;
    again) repeat="--repeat until-pass:3" ;;
    three-times) repeat="--repeat until-fail:3" ;;
    *) die "ctest_stage: tries \"$tries\"; legal are once, again, three-times" ;;
  esac
  report=$CARVE_ROOT/build/$preset/results.xml
  log=$CARVE_ROOT/build/$preset/test.log
  say "testing ($preset)"
  # shellcheck disable=SC2086
  run_ctest "$preset" "$report" -j "$(nproc)" $repeat $selection | tee "$log"
  [ -s "$report" ] || { failed=$((failed + 1)); failures+=("$preset: no test report"); return; }
  while IFS=$'\t' read -r state name reason; do
    case "$state" in
      run) passed=$((passed + 1)) ;;
      fail) if [ "$tries" = again ]; then late+=("$preset"$'\t'"$name"); else count_failure "$preset" "$name" "$report"; fi ;;
      *) skipped=$((skipped + 1)); skips+=("$preset: $name: $reason") ;;
    esac
  done < <(python3 "$CARVE_ROOT/tools/junit_rows" "$report")
  while read -r name; do repeated+=("$preset: $name"); done < <(
    awk '/Test +#[0-9]+: /{n=$0; sub(/.*Test +#[0-9]+: /,"",n); sub(/ \.\.\..*/,"",n)
         if (/Failed|Timeout|SEGFAULT|Abort/) bad[n]=1; else if (/Passed/ && bad[n]) print n}' "$log")
  # A race is one, whether or not it is lost again when the test is.
  grep -ho 'SUMMARY: ThreadSanitizer: .*' "$log" | sort -u | sed "s/^/$preset: /" >>"$convictions"
  while read -r seed; do seeds+=("$preset: $seed"); done < <(grep -o 'CARVE_[A-Z]*_SEED=[0-9]*' "$log" | sort -u)
}

# count_failure PRESET NAME REPORT: one that failed, with its last words.
count_failure() {
  failed=$((failed + 1)); failures+=("$1: $2")
  { say "the end of what $1: $2 printed"; python3 "$CARVE_ROOT/tools/junit_rows" --output "$2" "$3" | tail -30; } >>"$last_words"
}

# late_tries: what failed at each try of `again` is run once more when all else has ended, with the machine to itself: whom
# a neighbour of this virtual machine takes the processors from for minutes, all tries in a row fail. More of them than
# most_late are no such accident, and stay failed.
most_late=6
late_tries() {
  local one preset name report state
  for one in "${late[@]}"; do
    preset=${one%%$'\t'*} name=${one#*$'\t'}
    report=$CARVE_ROOT/build/$preset/results.xml
    if [ ${#late[@]} -le $most_late ]; then
      say "once more at the end: $preset: $name"
      report=$CARVE_ROOT/build/$preset/late.xml
      run_ctest "$preset" "$report" -R "^$(sed 's/[][\.*^$+?(){}|]/\\&/g' <<<"$name")\$"
    fi
    state=$(python3 "$CARVE_ROOT/tools/junit_rows" "$report" | awk -F'\t' -v name="$name" '$2 == name {print $1}')
    if [ "$state" = run ]; then
      passed=$((passed + 1)); repeated+=("$preset: $name, only at the end, alone")
    else
      count_failure "$preset" "$name" "$report"
    fi
  done
  late=()
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

# placing_stage: pods per second beside the stock scheduler, each on control planes of its own; at 100 nodes of the medians
# of three turns. A release build, so not one of ctest's tests, and judged once.
placing_stage() {
  say "placing pods on 100 and on 1,000 simulated nodes, beside the stock scheduler (release build, this machine)"
  local size
  for size in "--nodes 100 --pods 600 --turns 3" "--nodes 1000 --pods 5000 --turns 1"; do
    # shellcheck disable=SC2086  # words
    if CARVE_RING=soak-bench python3 "$CARVE_ROOT/bench/cluster/placing_turns.py" --build "$CARVE_ROOT/build/release" \
        --check $size; then
      passed=$((passed + 1))
    else
      failed=$((failed + 1)); failures+=("bench: placing_turns.py --check $size")
    fi
  done
}

# summary SECONDS: the closing lines; exits non-zero when a test failed or none ran. What failed says once more why: a
# log of which only the end is kept must be enough to begin with.
summary() {
  late_tries
  echo
  [ ! -s "$last_words" ] || cat "$last_words"
  while read -r found; do failed=$((failed + 1)); failures+=("a checker found: $found"); done <"$convictions"
  rm -f "$last_words" "$convictions"
  [ ${#skips[@]} -eq 0 ] || { echo "skipped, and why:"; printf '  %s\n' "${skips[@]}"; }
  [ ${#repeated[@]} -eq 0 ] || { echo "passed only when run again:"; printf '  %s\n' "${repeated[@]}"; }
  [ ${#repeated[@]} -eq 0 ] || [ ${#seeds[@]} -eq 0 ] || { echo "seeds of tries that failed:"; printf '  %s\n' "${seeds[@]}"; }
  [ ${#failures[@]} -eq 0 ] || { echo "failed:"; printf '  %s\n' "${failures[@]}"; }
  echo "took $(($1 / 60)) min $(($1 % 60)) s on $(nproc) cores"
  echo "$passed passed, $failed failed, $skipped skipped"
  [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}
