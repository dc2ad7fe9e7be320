# Tests are added next to what they test. Labels: unit (seconds), integration (minutes), thirdparty, gpu.
enable_testing()
find_package(GTest REQUIRED)
include(GoogleTest)

# What a sanitizer's or the fuzz stage builds, rather than everything.
add_custom_target(unit_tests)
add_custom_target(fuzzers)

# carve_test(core_ledger_test SOURCES ledger_test.cc USES carve_core [LABEL unit] [TIMEOUT 60] [ALONE])
# ALONE: it measures shares in real time, so nothing runs beside it.
# Every gtest case is one ctest test, so that the closing line counts what really ran.
function(carve_test name)
  cmake_parse_arguments(ARG "ALONE" "LABEL;TIMEOUT" "SOURCES;USES" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE carve_options ${ARG_USES} GTest::gtest GTest::gmock GTest::gtest_main)
  if(ARG_LABEL STREQUAL unit)
    add_dependencies(unit_tests ${name})
  endif()
  gtest_discover_tests(${name} TEST_PREFIX "${name}/" DISCOVERY_TIMEOUT 60
                       PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT} RUN_SERIAL ${ARG_ALONE})
endfunction()

# carve_fuzzer(quantity_fuzz SOURCES quantity_fuzz.cc USES carve_core): built under the fuzz preset only;
# as a test it runs its corpus folder (fuzz/corpus/<name>) and a bounded number of new inputs, in soak forty times more.
function(carve_fuzzer name)
  cmake_parse_arguments(ARG "" "RUNS" "SOURCES;USES" ${ARGN})
  if(NOT CARVE_FUZZ)
    return()
  endif()
  if(NOT ARG_RUNS)
    set(ARG_RUNS 5000)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE carve_options ${ARG_USES})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  add_dependencies(fuzzers ${name})
  set(work ${CMAKE_BINARY_DIR}/corpus/${name})
  file(MAKE_DIRECTORY ${work})
  set(seeds)
  if(EXISTS ${CMAKE_SOURCE_DIR}/fuzz/corpus/${name})
    set(seeds ${CMAKE_SOURCE_DIR}/fuzz/corpus/${name})
  endif()
  add_test(NAME fuzz/${name} COMMAND ${name} -runs=${ARG_RUNS} -max_len=4096 -timeout=5 ${work} ${seeds})
  set_tests_properties(fuzz/${name} PROPERTIES LABELS fuzz TIMEOUT 300)
  # scripts/soak: forty times as many, from what the short runs found worth keeping.
  math(EXPR many "${ARG_RUNS} * 40")
  add_test(NAME fuzz/${name}_long COMMAND ${name} -runs=${many} -max_len=4096 -timeout=5 ${work} ${seeds})
  set_tests_properties(fuzz/${name}_long PROPERTIES LABELS soak TIMEOUT 3600)
endfunction()
