# Sourced by scripts/test and scripts/soak: runs one stage, keeps the counts, prints the closing lines.
# shellcheck shell=bash

passed=0 failed=0 skipped=0
failures=()
skips=()

# ctest_stage PRESET SELECTION: all tests of build/PRESET that SELECTION (ctest's own flags) picks.
ctest_stage() {
  local preset=$1 selection=$2 report line
  report=$CARVE_ROOT/build/$preset/results.xml
  say "testing ($preset)"
  rm -f "$report"
  # The tests that fork load or measure shares are marked RUN_SERIAL; the others share the cores.
  # shellcheck disable=SC2086
  (cd "$CARVE_ROOT/build/$preset" &&
   ctest --output-on-failure --timeout 600 -j "$(nproc)" --output-junit "$report" $selection)
  [ -s "$report" ] || { failed=$((failed + 1)); failures+=("$preset: no test report"); return; }
  while IFS=$'\t' read -r state name reason; do
    case "$state" in
      run) passed=$((passed + 1)) ;;
      fail) failed=$((failed + 1)); failures+=("$preset: $name") ;;
      *) skipped=$((skipped + 1)); skips+=("$preset: $name: $reason") ;;
    esac
  done < <(python3 "$CARVE_ROOT/tools/junit_rows" "$report")
}

# bench_stage: the cost benchmark against 1.5 times its budgets (design: budgets), once more when noisy.
bench_stage() {
  local bench
  say "measuring costs (release build, this machine)"
  for bench in "$CARVE_ROOT"/build/release/bin/carve-bench-calls; do
    if [ ! -x "$bench" ]; then
      failed=$((failed + 1)); failures+=("bench: $(basename "$bench") was not built")
    elif "$bench" --check || { say "beyond a budget: measuring once more, the machine may be busy"; "$bench" --check; }; then
      passed=$((passed + 1))
    else
      failed=$((failed + 1)); failures+=("bench: $(basename "$bench") --check")
    fi
  done
}

# summary SECONDS: the closing lines; exits non-zero when a test failed or none ran.
summary() {
  echo
  [ ${#skips[@]} -eq 0 ] || { echo "skipped, and why:"; printf '  %s\n' "${skips[@]}"; }
  [ ${#failures[@]} -eq 0 ] || { echo "failed:"; printf '  %s\n' "${failures[@]}"; }
  echo "took $(($1 / 60)) min $(($1 % 60)) s on $(nproc) cores"
  echo "$passed passed, $failed failed, $skipped skipped"
  [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}
