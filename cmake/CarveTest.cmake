# Tests are defined next to the code that they test. Labels: unit (seconds), integration (minutes), thirdparty, gpu.
enable_testing()
find_package(GTest REQUIRED)
include(GoogleTest)

# The targets that a sanitizer stage builds, instead of the whole tree.
add_custom_target(unit_tests)
add_custom_target(sanitized_tests)  # parsers, threads, memory: the unit tests of all folders but the applications and bench
add_custom_target(fuzzers)
add_custom_target(threads_test)
add_custom_target(threads_soak)

carve_pch(carve_pch_test <gmock/gmock.h> <gtest/gtest.h> <boost/json.hpp> <rapidcheck.h>)
target_link_libraries(carve_pch_test PRIVATE GTest::gmock GTest::gtest)
target_compile_options(carve_pch_test PRIVATE -O0)
set_target_properties(carve_pch_test PROPERTIES POSITION_INDEPENDENT_CODE OFF)

# For scripts/check: only the pure folders, with all their tests in one program, because that links once after a change.
option(CARVE_PURE "Build abi, lease, base, core and codec only, with their tests in one program, pure_tests" OFF)
if(CARVE_PURE)
  add_executable(pure_tests $<TARGET_OBJECTS:carve_pch_test>)
  target_link_libraries(pure_tests PRIVATE carve_options GTest::gtest GTest::gmock GTest::gtest_main)
  # After a change of one line the linker takes as long as the compiler. gold takes a third of GNU ld's time.
  target_link_options(pure_tests PRIVATE -fuse-ld=gold)
  # The libraries alone. Here each source is compiled by itself, so scripts/test finds an include that a unity build hides.
  add_custom_target(pure_libraries)
endif()

# The command prefix of a test that measures real time (label alone): scripts/test runs several of them concurrently,
# and they wait more than they compute. Their programs wait for the simulated card, not for a processor that another
# test uses. Where the priority may not be raised, `nice` prints a message and continues.
set(first_at_the_processor nice -n -20)
# COST of a test of a minute or more that needs no ring. ctest starts tests of high COST first. A ring waits until its
# binaries are there, and would then wait for such tests.
set(after_the_rings 5)

# carve_test(core_ledger_test SOURCES ledger_test.cc USES carve_core [LABEL unit] [TIMEOUT 180] [ALONE] [OWN_PROGRAM]
#            [THREADS test|soak])
# ALONE: the test measures real time, so it gets the label `alone` and first_at_the_processor.
# OWN_PROGRAM: the sources define a macro that changes inline functions of a header. In one program with other sources the
# linker would keep either copy of these functions, so scripts/check builds and runs this test beside pure_tests.
# THREADS: the test has concurrent threads, so scripts/test, or scripts/soak, also runs it under ThreadSanitizer.
# Every gtest case is one ctest test, so that the closing line counts the tests that really ran. With CARVE_WHOLE_PROGRAMS
# (the sanitize preset) a program of unit tests is one ctest test: a sanitizer's start costs more than most cases.
option(CARVE_WHOLE_PROGRAMS "Run all unit tests of one program in one process" OFF)
function(carve_test name)
  cmake_parse_arguments(ARG "ALONE;OWN_PROGRAM" "LABEL;TIMEOUT;THREADS" "SOURCES;USES" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 180)  # against hanging; a loaded machine is several times slower
  endif()
  if(CARVE_PURE AND NOT ARG_OWN_PROGRAM)
    add_library(${name} OBJECT ${ARG_SOURCES})
    target_link_libraries(pure_tests PRIVATE ${name})
  else()
    add_executable(${name} ${ARG_SOURCES})
  endif()
  target_link_libraries(${name} PRIVATE carve_options ${ARG_USES} GTest::gtest GTest::gmock GTest::gtest_main)
  # A test with one thread calls functions that need a lock without it.
  target_compile_options(${name} PRIVATE -O0 $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wno-thread-safety>)
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_precompile_headers(${name} REUSE_FROM carve_pch_test)
  if(CARVE_PURE)
    if(ARG_OWN_PROGRAM)
      add_dependencies(pure_tests ${name})
    endif()
    return()
  endif()
  set(sanitized OFF)
  if(ARG_LABEL STREQUAL unit)
    add_dependencies(unit_tests ${name})
    if(NOT CMAKE_CURRENT_SOURCE_DIR MATCHES "/src/(app|cmd)|/bench/")
      set(sanitized ON)
      add_dependencies(sanitized_tests ${name})
    endif()
  endif()
  set(environment)
  if(ARG_THREADS AND CARVE_SANITIZE STREQUAL "thread")
    add_dependencies(threads_${ARG_THREADS} ${name})
    set(ARG_LABEL threads_${ARG_THREADS})
    math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 4")
    set(environment ENVIRONMENT "TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/cmake/tsan.supp:second_deadlock_stack=1")
  endif()
  if(ARG_ALONE)
    set_target_properties(${name} PROPERTIES CROSSCOMPILING_EMULATOR "${first_at_the_processor}")
  endif()
  if(CARVE_WHOLE_PROGRAMS AND ARG_LABEL STREQUAL unit)
    if(sanitized)
      add_test(NAME ${name} COMMAND ${name} --gtest_brief=1)
      set_tests_properties(${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT 300)
    endif()
    return()
  endif()
  gtest_discover_tests(${name} TEST_PREFIX "${name}/" DISCOVERY_TIMEOUT 60
                       PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT} ${environment})
  if(ARG_ALONE AND NOT ARG_LABEL MATCHES "^threads_")
    # gtest_discover_tests() takes no list of labels (CMake 3.25).
    set(labels ${CMAKE_CURRENT_BINARY_DIR}/${name}_labels.cmake)
    file(WRITE ${labels} "if(${name}_TESTS)\n  set_tests_properties(\${${name}_TESTS} PROPERTIES LABELS \"${ARG_LABEL};alone\")\nendif()\n")
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${labels})
  endif()
endfunction()

# carve_fuzzer(quantity_fuzz SOURCES quantity_fuzz.cc USES carve_core) is built only under the sanitize preset. As a
# test it runs its corpus folder (fuzz/corpus/<name>) and a bounded number of new inputs; soak runs forty times as many.
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
  # scripts/soak: forty times as many inputs, starting from the corpus that the short runs found.
  math(EXPR many "${ARG_RUNS} * 40")
  add_test(NAME fuzz/${name}_long COMMAND ${name} -runs=${many} -max_len=4096 -timeout=5 ${work} ${seeds})
  set_tests_properties(fuzz/${name}_long PROPERTIES LABELS soak TIMEOUT 3600)
endfunction()
