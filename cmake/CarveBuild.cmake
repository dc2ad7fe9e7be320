# The settings of every target: the language level, the warnings (all are errors), the sanitizers.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()

set(CARVE_SANITIZE "" CACHE STRING "Sanitizers for everything except the freestanding library: address,undefined or thread")
option(CARVE_FUZZ "Build the fuzzers (clang only)" OFF)

# The interpreter itself: the wrapper of a version switcher on PATH would cost each of about 500 tests a tenth of a
# second.
find_program(CARVE_PYTHON python3 REQUIRED)
execute_process(COMMAND ${CARVE_PYTHON} -c "import sys; print(sys.executable)" OUTPUT_VARIABLE carve_python
                OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
set(Python3_EXECUTABLE ${carve_python} CACHE FILEPATH "Runs the tests that are Python programs")

find_program(CARVE_CCACHE ccache)
if(CARVE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without this sloppiness, ccache does not cache a compilation that reads a precompiled header (its manual says so).
  # CCACHE_DEPEND: a miss costs no extra run of the preprocessor, which is a tenth of a test's compilation.
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_DEPEND=1 ${CARVE_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
endif()

set(Boost_USE_STATIC_LIBS ON)
find_package(Boost 1.81 REQUIRED COMPONENTS json)
find_package(simdjson REQUIRED)
# Without optimisation simdjson gives its parsers more members. A test at -O0 and a library at -O2 must agree on them.
set_property(TARGET simdjson::simdjson APPEND PROPERTY INTERFACE_COMPILE_DEFINITIONS SIMDJSON_DEVELOPMENT_CHECKS=0)

# GCC starts garbage collection at 128 MiB, which takes a twentieth of the time of a large file. Four concurrent
# compilers with 512 MiB more each fit the machine that the tests are designed for (24 GiB).
add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=524288>)

# The warnings, as an interface target so that third-party objects can be compiled without them.
# GCC 12 reports std::string's operator+ falsely under the last three when it inlines from a precompiled header (GCC bug
# 105329 and its duplicates). The clang build and the sanitizers find what these warnings would find.
add_library(carve_warnings INTERFACE)
target_compile_options(carve_warnings INTERFACE -Wall -Wextra -Wconversion -Wshadow -Werror
                       $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds -Wno-restrict -Wno-stringop-overflow>
                       # In C++ GCC's -Wconversion excludes sign conversions; Clang's includes them.
                       $<$<CXX_COMPILER_ID:Clang>:-Wno-sign-conversion>)

# The two include roots: `abi/…`, `lease/…`, `sim/…` from the top, `base/…`, `core/…` from src.
# carve_unsanitized is for programs that act as tenants: a static program, for example, cannot be sanitized.
add_library(carve_unsanitized INTERFACE)
target_link_libraries(carve_unsanitized INTERFACE carve_warnings)
target_include_directories(carve_unsanitized INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/src)
# CMake's Boost targets define BOOST_…_NO_LIB. It is defined everywhere here, so that one precompiled header fits all
# files.
target_compile_definitions(carve_unsanitized INTERFACE _GNU_SOURCE BOOST_CONTAINER_NO_LIB BOOST_JSON_NO_LIB)
# Debian has no static archive of fmt.
add_library(carve_fmt STATIC ${CMAKE_SOURCE_DIR}/src/base/fmt_compiled.cc)
target_link_libraries(carve_unsanitized INTERFACE carve_fmt)
add_library(carve_options INTERFACE)
target_link_libraries(carve_options INTERFACE carve_unsanitized)
if(CARVE_SANITIZE)
  target_compile_options(carve_options INTERFACE -fsanitize=${CARVE_SANITIZE} -fno-omit-frame-pointer
                                                -fno-sanitize-recover=all
                                                # These checks take a quarter (Clang) to four tenths (GCC) of the
                                                # compiler's time. ASan reports a null pointer and an object that is too
                                                # small as well.
                                                $<$<CXX_COMPILER_ID:GNU>:-fno-sanitize=null,alignment>
                                                $<$<CXX_COMPILER_ID:Clang>:-fno-sanitize=null,object-size,pointer-overflow,vptr>
                                                # Clang 14 cannot place this check's word before some lambdas
                                                # ("difference across sections").
                                                $<$<CXX_COMPILER_ID:Clang>:-fno-sanitize=function>
                                                # GCC's manual: with sanitizers these warnings are false at times
                                                # (std::regex, std::string's operator+)
                                                $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>
                                                $<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overread>)
  target_link_options(carve_options INTERFACE -fsanitize=${CARVE_SANITIZE})
endif()

# Precompiled headers. Without them the compiler spends most of its time on the same standard and third-party headers in
# every file. carve_pch_std is for all libraries, carve_pch_json for those that use Boost.JSON, so that a folder that
# must not see JSON does not see it here. carve_pch_test is for tests. Every file still includes what it uses:
# tools/check_headers compiles each header alone, and the clang preset builds the tree without precompiled headers.
set(CARVE_PCH_STD <algorithm> <array> <atomic> <cerrno> <charconv> <chrono> <condition_variable> <cstddef> <cstdint>
                  <cstdlib> <cstring> <filesystem> <fstream> <functional> <limits> <map> <memory> <mutex> <optional>
                  <set> <span> <sstream> <stop_token> <string> <string_view> <thread> <tuple> <utility> <variant> <vector>
                  <fmt/format.h> <tl/expected.hpp>)
function(carve_pch name)
  file(WRITE ${CMAKE_BINARY_DIR}/pch/${name}.cc.new "")
  configure_file(${CMAKE_BINARY_DIR}/pch/${name}.cc.new ${CMAKE_BINARY_DIR}/pch/${name}.cc COPYONLY)
  add_library(${name} STATIC ${CMAKE_BINARY_DIR}/pch/${name}.cc)
  target_link_libraries(${name} PRIVATE carve_options)
  target_precompile_headers(${name} PRIVATE ${CARVE_PCH_STD} ${ARGN})
endfunction()
carve_pch(carve_pch_std)
carve_pch(carve_pch_json <boost/json.hpp>)
# ccache must find GCC's precompiled headers in the preprocessed file; Clang's must not depend on the time.
add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>
                    "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:SHELL:-Xclang -fno-pch-timestamp>")

# Unity builds: several sources of a target as one translation unit. They instantiate the same templates, so the whole
# takes a third of the time. Unity builds are off where a contributor rebuilds one file (check), and in the clang
# preset, which proves that each source compiles by itself.
option(CARVE_UNITY "Compile the sources of a library together" ON)
function(carve_unity name)
  if(CARVE_UNITY)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 14)
    # GCC warns about a class with members that are private to its source file when that is not the main file of the
    # compilation.
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

# carve_seldom(carve_codec_manifest): the target's code runs once per command, setting or container start, or once a
# second. At -O1 it compiles in two thirds of the time.
function(carve_seldom name)
  target_compile_options(${name} PRIVATE $<$<NOT:$<CONFIG:Debug>>:-O1>)
endfunction()

# carve_library(carve_core SOURCES a.cc … USES carve_base … [FREESTANDING] [SELDOM]): one static library per folder or
# sub-folder. FREESTANDING: its files may not see the standard library, so they get no precompiled header. SELDOM:
# carve_seldom().
function(carve_library name)
  cmake_parse_arguments(ARG "FREESTANDING;SELDOM" "" "SOURCES;USES;PRIVATE_USES" ${ARGN})
  if(ARG_SOURCES)
    add_library(${name} STATIC ${ARG_SOURCES})
    target_link_libraries(${name} PUBLIC carve_options ${ARG_USES} PRIVATE ${ARG_PRIVATE_USES})
    list(LENGTH ARG_SOURCES sources)
    if(sources GREATER 1 AND NOT ARG_FREESTANDING)
      carve_unity(${name})
    endif()
    if("Boost::json" IN_LIST ARG_PRIVATE_USES)
      target_precompile_headers(${name} REUSE_FROM carve_pch_json)
    elseif(NOT ARG_FREESTANDING)
      target_precompile_headers(${name} REUSE_FROM carve_pch_std)
    endif()
    if(ARG_SELDOM)
      carve_seldom(${name})
    elseif(CMAKE_CURRENT_SOURCE_DIR MATCHES "^${CMAKE_SOURCE_DIR}/src/")
      # The development build: -O1 saves a quarter to a third of the compiler's time. What runs per CUDA call or kernel
      # (lease, arbiter, preload) and the simulator are outside src. The release build has -O2.
      target_compile_options(${name} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1>)
    endif()
    if(CARVE_PURE)
      add_dependencies(pure_libraries ${name})
    endif()
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE carve_options ${ARG_USES})
  endif()
endfunction()
