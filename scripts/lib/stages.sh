# Sourced by scripts/test and scripts/soak: runs one stage, keeps the counts, prints the closing lines.
# shellcheck shell=bash

passed=0 failed=0 skipped=0
failures=()
skips=()
repeated=()
seeds=()
late=()  # keys of the tests that failed both tries of `again`; late_tries tries them at the end
# A key is "PRESET<tab>NAME".
declare -A tries=() passes=()  # how often this run tried a test, and how many of these tries passed
declare -A outputs=()          # the end of what a failed test printed
last_words=$(mktemp "${TMPDIR:-/tmp}/carve-test.XXXXXX")
convictions=$(mktemp "${TMPDIR:-/tmp}/carve-convictions.XXXXXX")
repeats=$(mktemp -d "${TMPDIR:-/tmp}/carve-repeats.XXXXXX")
made=$(mktemp -d "${TMPDIR:-/tmp}/carve-made.XXXXXX")  # reports of make_report

# A slow processor is no excuse for a failure here: tests without real time, and tests that read the tree.
pure='^(core|codec|lease|app|arbiter_parts)_|^(tools|tree)/|_is_current$'
# Not run under ASan: RTLD_DEEPBIND, which its runtime forbids, and figures of memory and time, which it multiplies.
not_under_asan='EveryWayOfLoadingFindsTheLibrary|the_agent_is_small|second_line|does_not_fill_the_memory|idle_watches_cost_little|integration/demo'

# call_ctest PRESET REPORT FLAGS…: calls ctest once. What it prints is also in REPORT's .log.
call_ctest() {
  local preset=$1 report=$2
  shift 2
  rm -f "$report"
  (cd "$CARVE_ROOT/build/$preset" &&
   CARVE_CONVICTIONS=$convictions CARVE_REPEATS=$repeats \
     ctest --output-on-failure --timeout 600 --output-junit "$report" "$@") | tee "${report%.xml}.log"
}

# count_tries PRESET REPORT: counts each try that REPORT's .log names, and collects the races that ThreadSanitizer
# reports and the seeds that failed tests print.
count_tries() {
  local preset=$1 log=${2%.xml}.log state name key seed
  while IFS=$'\t' read -r state name; do
    key=$preset$'\t'$name
    tries[$key]=$((${tries[$key]:-0} + 1))
    [ "$state" = fail ] || passes[$key]=$((${passes[$key]:-0} + 1))
  done < <(awk '/^( *[0-9]+\/[0-9]+)? *Test +#[0-9]+: / {
                  name = $0; sub(/^[^#]*#[0-9]+: /, "", name)
                  result = name; sub(/ \.\.\..*/, "", name); result = substr(result, length(name) + 1)
                  if (result ~ /Passed/) print "pass\t" name
                  else if (result !~ /Skipped|Not Run|Disabled/) print "fail\t" name
                }' "$log")
  grep -ho 'SUMMARY: ThreadSanitizer: .*' "$log" | sort -u | sed "s/^/$preset: /" >>"$convictions"
  while read -r seed; do seeds+=("$preset: $seed"); done < <(grep -o 'CARVE_[A-Z]*_SEED=[0-9]*' "$log" | sort -u)
}

# call_stage PRESET TRIES SELECTION REPORT: the call of ctest for ctest_stage.
call_stage() {
  local repeat
  case "$2" in
    once) repeat= ;;
    again) repeat="--repeat until-pass:2" ;;
    three-times) repeat="--repeat until-fail:3" ;;
    *) die "ctest_stage: tries \"$2\"; legal are once, again, three-times" ;;
  esac
  # shellcheck disable=SC2086
  call_ctest "$1" "$4" -j "$(nproc)" $repeat $3
}

# made_report PRESET SELECTION: prints the name of the report that make_report writes.
made_report() { echo "$made/$1-$(cksum <<<"$2" | cut -d' ' -f1).xml"; }

# make_report PRESET TRIES SELECTION: runs a stage's tests in the background. ctest_stage with the same arguments counts
# them and does not run them again; it runs them if this call did not end.
make_report() { call_stage "$1" "$2" "$3" "$(made_report "$1" "$3")"; }

# ctest_stage PRESET TRIES SELECTION: runs all tests of build/PRESET that SELECTION (ctest's own flags) selects.
#
# TRIES is once, again, or three-times (every test). Tests in real time (shares, rings, real processes) can miss a bound
# when another program takes the machine's two cores for a moment. `again` tries a failed test a second time. late_tries
# tries a test that failed both times twice more at the end. A scenario on a ring is one test with many parts: its next
# try runs the parts that have not passed (tests/cluster/ring/repeats.py). At least half of a test's tries must pass;
# count_pass says what else a repetition causes. Some findings fail the run regardless of repetitions: errors that the
# rings' independent checkers find (RingTest.assert_no_findings), and every race that ThreadSanitizer reports.
ctest_stage() {
  local preset=$1 mode=$2 selection=$3 report state name reason key
  report=$(made_report "$preset" "$selection")
  if [ -s "$report" ]; then
    say "tested ($preset) beside the stages before"
    cat "${report%.xml}.log"
    cp "$report" "$CARVE_ROOT/build/$preset/results.xml"
  else
    report=$CARVE_ROOT/build/$preset/results.xml
    say "testing ($preset)"
    call_stage "$preset" "$mode" "$selection" "$report"
  fi
  count_tries "$preset" "$report"
  [ -s "$report" ] || { failed=$((failed + 1)); failures+=("$preset: no test report"); return; }
  while IFS=$'\t' read -r state name reason; do
    key=$preset$'\t'$name
    case "$state" in
      run) count_pass "$preset" "$name" ;;
      fail) keep_output "$preset" "$name" "$report"
            if [ "$mode" = again ]; then late+=("$key"); else count_failure "$preset" "$name"; fi ;;
      *) # A test that fails and then skips has failed.
         if [ "${passes[$key]:-0}" -lt "${tries[$key]:-0}" ]; then
           keep_output "$preset" "$name" "$report"; count_failure "$preset" "$name"
         else
           skipped=$((skipped + 1)); skips+=("$preset: $name: $reason")
         fi ;;
    esac
  done < <(python3 "$CARVE_ROOT/tools/junit_rows" "$report")
}

# keep_output PRESET NAME REPORT: keeps the end of what a failed test printed, before the next report replaces this one.
keep_output() { outputs[$1$'\t'$2]=$(python3 "$CARVE_ROOT/tools/junit_rows" --output "$2" "$3" | tail -30); }

# count_failure PRESET NAME: counts a failed test and keeps its output for summary.
count_failure() {
  failed=$((failed + 1)); failures+=("$1: $2$(rate "$1" "$2")")
  { say "the end of what $1: $2 printed"; echo "${outputs[$1$'\t'$2]:-}"; } >>"$last_words"
}

# count_pass PRESET NAME: counts a test that passed its last try. A test that needed more than one try is reported with
# its rate and with its line in docs/flaky.md. A unit test that is not listed there is a defect and fails the run. Tests
# of real processes (labels integration and thirdparty), of real time (alone) and of a real Kubernetes (cluster, and
# soak's rings) are exempt.
count_pass() {
  local key=$1$'\t'$2 line report
  if [ "${passes[$key]:-0}" -eq "${tries[$key]:-0}" ]; then passed=$((passed + 1)); return; fi
  line=$(flaky_line "$2")
  report="$1: $2$(rate "$1" "$2"), ${line:-not listed in docs/flaky.md}"
  if [ $((2 * passes[$key])) -lt "${tries[$key]}" ] || { [ -z "$line" ] && ! waits_for_real_time "$1" "$2"; }; then
    failed=$((failed + 1)); failures+=("$report")
  else
    passed=$((passed + 1)); repeated+=("$report")
  fi
}

# rate PRESET NAME: prints ": passed n of m tries" over the whole run; prints nothing after a single try.
rate() {
  local key=$1$'\t'$2
  [ "${tries[$key]:-0}" -le 1 ] || echo ": passed ${passes[$key]:-0} of ${tries[$key]} tries"
}

# flaky_line NAME: prints "docs/flaky.md:LINE", the row that has this test's name in its first column, or the beginning
# of the name and a `*`; prints nothing without such a row.
flaky_line() {
  [ ! -f "$CARVE_ROOT/docs/flaky.md" ] ||
    awk -F'|' -v name="$1" 'split($2, cell, "`") == 3 && (cell[2] == name ||
                              (sub(/\*$/, "", cell[2]) && index(name, cell[2]) == 1)) { print "docs/flaky.md:" NR; exit }' \
      "$CARVE_ROOT/docs/flaky.md"
}

# waits_for_real_time PRESET NAME: succeeds if a test runs real processes, measures real time, or waits for a real
# Kubernetes.
waits_for_real_time() {
  case "$2" in cluster-*) return 0 ;; esac
  (cd "$CARVE_ROOT/build/$1" && ctest -N -L '^(integration|thirdparty|alone|cluster)$') | sed -n 's/^ *Test *#[0-9]*: //p' | grep -Fxq -- "$2"
}

# late_tries: tries each test that failed both tries of `again` twice more after all other tests, alone on the machine.
# The host of a virtual machine can take its processors away for minutes, and every try in that time fails. Both late
# tries must pass, so that half of all tries passed. If there are more than most_late such tests the host is not the
# cause; they stay failed.
most_late=6
late_tries() {
  local key preset name report state
  for key in "${late[@]}"; do
    preset=${key%%$'\t'*} name=${key#*$'\t'} state=fail
    if [ ${#late[@]} -le $most_late ]; then
      say "twice more at the end: $preset: $name"
      report=$CARVE_ROOT/build/$preset/late.xml
      call_ctest "$preset" "$report" --repeat until-fail:2 -R "^$(sed 's/[][\.*^$+?(){}|]/\\&/g' <<<"$name")\$"
      count_tries "$preset" "$report"
      state=$(python3 "$CARVE_ROOT/tools/junit_rows" "$report" | awk -F'\t' -v name="$name" '$2 == name {print $1}')
      [ "$state" = run ] || keep_output "$preset" "$name" "$report"
    fi
    if [ "$state" = run ]; then count_pass "$preset" "$name"; else count_failure "$preset" "$name"; fi
  done
  late=()
}

# bench_stage: compares the cost benchmark with 1.5 times its budgets; repeats it once when a budget is exceeded.
bench_stage() {
  local bench=$CARVE_ROOT/build/release/bin/carve-bench-calls
  say "measuring costs (release build, this machine)"
  if [ ! -x "$bench" ]; then
    failed=$((failed + 1)); failures+=("bench: carve-bench-calls was not built")
  elif "$bench" --check; then
    passed=$((passed + 1))
  elif say "over a budget: measuring once more, the machine may be busy"; "$bench" --check; then
    passed=$((passed + 1)); repeated+=("bench: carve-bench-calls --check: passed 1 of 2 tries")
  else
    failed=$((failed + 1)); failures+=("bench: carve-bench-calls --check")
  fi
}

# placing_stage: compares pods per second with the stock scheduler's, each on its own control plane; at 100 nodes the
# medians of three turns. It needs a release build, so it is not a ctest test, and it is judged once.
placing_stage() {
  say "placing pods on 100 and on 1,000 simulated nodes, compared with the stock scheduler (release build, this machine)"
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

# soak_record LINE…: adds a run of scripts/soak to docs/soak/DATE.md, which docs/support.md links. Stages of one day may
# run one after the other; each run has its commit.
soak_record() {
  local file=$CARVE_ROOT/docs/soak/$(date -u +%F).md
  mkdir -p "${file%/*}"
  [ -s "$file" ] || {
    echo "# scripts/soak, $(date -u +%F)"
    echo
    echo "$(nproc) cores of $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), simulated cards."
  } >"$file"
  {
    echo
    echo "## Commit $(git -C "$CARVE_ROOT" rev-parse --short HEAD)"
    echo
    printf -- '- %s\n' "$@"
    [ ${#skips[@]} -eq 0 ] || { echo; echo "Skipped:"; echo; printf -- '- %s\n' "${skips[@]}"; }
    [ ${#repeated[@]} -eq 0 ] || { echo; echo "Passed, but not at each try:"; echo; printf -- '- %s\n' "${repeated[@]}"; }
    [ ${#failures[@]} -eq 0 ] || { echo; echo "Failed:"; echo; printf -- '- %s\n' "${failures[@]}"; }
    echo
    echo "$passed passed, $failed failed, $skipped skipped"
  } >>"$file"
  say "recorded in ${file#"$CARVE_ROOT"/}: commit it, and link it in docs/support.md"
}

# summary SECONDS: prints the closing lines; returns non-zero when a test failed or none ran. It repeats why a test
# failed, so that the end of a log is enough to begin with.
summary() {
  late_tries
  echo
  [ ! -s "$last_words" ] || cat "$last_words"
  while read -r found; do failed=$((failed + 1)); failures+=("a checker found: $found"); done <"$convictions"
  rm -rf "$last_words" "$convictions" "$repeats" "$made"
  [ ${#skips[@]} -eq 0 ] || { echo "skipped, and why:"; printf '  %s\n' "${skips[@]}"; }
  [ ${#repeated[@]} -eq 0 ] || { echo "passed, but not at each try:"; printf '  %s\n' "${repeated[@]}"; }
  [ ${#seeds[@]} -eq 0 ] || { echo "seeds of tries that failed:"; printf '  %s\n' "${seeds[@]}"; }
  [ ${#failures[@]} -eq 0 ] || { echo "failed:"; printf '  %s\n' "${failures[@]}"; }
  echo "took $(($1 / 60)) min $(($1 % 60)) s on $(nproc) cores"
  echo "$passed passed, $failed failed, $skipped skipped"
  [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}
