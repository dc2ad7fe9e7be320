# What every target shares: the language level, the warnings (errors, all of them), the sanitizers.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()

set(CARVE_SANITIZE "" CACHE STRING "Sanitizers for all but the freestanding library: address,undefined or thread")
option(CARVE_FUZZ "Build the fuzzers (clang only)" OFF)

find_program(CARVE_CCACHE ccache)
if(CARVE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER ${CARVE_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CARVE_CCACHE})
endif()

# The warnings, as an interface target so that third-party objects can stay without them.
add_library(carve_warnings INTERFACE)
target_compile_options(carve_warnings INTERFACE -Wall -Wextra -Wconversion -Wshadow -Werror)

# The two include roots: `abi/…`, `lease/…`, `sim/…` from the top, `base/…`, `core/…` from src.
# carve_unsanitized is for what plays a tenant: a static program, for one, cannot be sanitized.
add_library(carve_unsanitized INTERFACE)
target_link_libraries(carve_unsanitized INTERFACE carve_warnings)
target_include_directories(carve_unsanitized INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/src)
target_compile_definitions(carve_unsanitized INTERFACE SPDLOG_FMT_EXTERNAL=1 _GNU_SOURCE)
# Debian packages no static archive of fmt or spdlog. spdlog is header-only (one file sees it).
add_library(carve_fmt STATIC ${CMAKE_SOURCE_DIR}/src/base/fmt_compiled.cc)
target_link_libraries(carve_unsanitized INTERFACE carve_fmt)
add_library(carve_options INTERFACE)
target_link_libraries(carve_options INTERFACE carve_unsanitized)
if(CARVE_SANITIZE)
  target_compile_options(carve_options INTERFACE -fsanitize=${CARVE_SANITIZE} -fno-omit-frame-pointer
                                                -fno-sanitize-recover=all
                                                # With GCC these two take four tenths of the compiler's time. A null
                                                # pointer ASan reports as well; both are on in the fuzzers' build (clang).
                                                $<$<CXX_COMPILER_ID:GNU>:-fno-sanitize=null,alignment>
                                                # Clang 14 cannot place this check's word before some lambdas ("difference
                                                # across sections").
                                                $<$<CXX_COMPILER_ID:Clang>:-fno-sanitize=function>
                                                # GCC's manual: with sanitizers this one warns falsely (std::regex)
                                                $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_link_options(carve_options INTERFACE -fsanitize=${CARVE_SANITIZE})
endif()

# carve_library(carve_core SOURCES a.cc … USES carve_base …): one static library per room or sub-room.
function(carve_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;USES;PRIVATE_USES" ${ARGN})
  if(ARG_SOURCES)
    add_library(${name} STATIC ${ARG_SOURCES})
    target_link_libraries(${name} PUBLIC carve_options ${ARG_USES} PRIVATE ${ARG_PRIVATE_USES})
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE carve_options ${ARG_USES})
  endif()
endfunction()
