# Language, warnings, sanitizers, and the faster tools where they are installed.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1")  # checks stay on: NDEBUG is never defined

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # base_dir and no hash_dir: a fresh clone elsewhere hits the same cache entries. One locale: Python
  # sets another where there is none, and the build of a wheel would miss them. A script of the same
  # name, because clang-tidy knows that a command may begin with "ccache".
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/ccache @ONLY CONTENT [[#!/bin/sh
unset LC_ALL LC_CTYPE LC_MESSAGES
export LANG=C.UTF-8 CCACHE_BASEDIR='@CMAKE_SOURCE_DIR@' CCACHE_NOHASHDIR=1
exec '@CCACHE@' "$@"
]])
  file(CHMOD ${CMAKE_BINARY_DIR}/ccache
       PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
  set(CMAKE_C_COMPILER_LAUNCHER ${CMAKE_BINARY_DIR}/ccache)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_BINARY_DIR}/ccache)
endif()
find_program(MOLD mold)
if(MOLD)
  add_link_options(-fuse-ld=mold)
endif()

add_compile_options(-Wall -Wextra -Wpedantic -Wshadow -Wconversion
                    "$<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor;-Woverloaded-virtual>"
                    -ffile-prefix-map=${CMAKE_SOURCE_DIR}/=)
option(DIVISI_WERROR "Warnings are errors" ON)
if(DIVISI_WERROR)
  add_compile_options(-Werror)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  add_compile_options(-Wthread-safety)
endif()

set(DIVISI_SANITIZE "" CACHE STRING "address (with undefined), thread, or empty")
if(DIVISI_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(DIVISI_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
endif()
if(DIVISI_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # The instrumentation confuses gcc's flow analysis (std::regex alone gives a screenful); the
  # release build has the warning.
  add_compile_options(-Wno-maybe-uninitialized -Wno-stringop-overflow -Wno-stringop-overread -Wno-array-bounds -Wno-restrict)
endif()
find_package(Threads REQUIRED)
find_package(Boost 1.81 EXACT REQUIRED)
find_package(fmt REQUIRED)
find_package(OpenSSL REQUIRED)
