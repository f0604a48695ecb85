include(GoogleTest)

# Several sources a compilation: half the compiler's time, most of which goes into headers that they share.
# Names in unnamed namespaces must then differ between the sources of a target; a source whose names do
# not goes under ALONE. OFF for a rebuild of one source at a time, and for clang-tidy.
option(DIVISI_UNITY "Compile several sources of a target at once" ON)

# together(TARGET sources...): all but the sources after the target are compiled several at once.
function(together target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${DIVISI_UNITY} UNITY_BUILD_BATCH_SIZE 8)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  if(DIVISI_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # g++ takes every source of the set for a header, where a member of an unnamed type would be wrong.
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endif()
endfunction()

# divisi_module(NAME SOURCES sources... ALONE sources... DEPS modules... LIBS private libraries...)
#
# One folder, one static library divisi_NAME. Its tests stand beside it (divisi_test).
function(divisi_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;ALONE;DEPS;LIBS" ${ARGN})
  add_library(divisi_${name} STATIC ${ARG_SOURCES} ${ARG_ALONE})
  together(divisi_${name} ${ARG_ALONE})
  target_include_directories(divisi_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  foreach(dep ${ARG_DEPS})
    target_link_libraries(divisi_${name} PUBLIC divisi_${dep})
  endforeach()
  target_link_libraries(divisi_${name} PUBLIC divisi_fmt Threads::Threads PRIVATE ${ARG_LIBS})
  if(DIVISI_FUZZ)
    # Every module tells libFuzzer which branches an input reached; the fuzzers add its main().
    target_compile_options(divisi_${name} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
  set_property(GLOBAL APPEND PROPERTY DIVISI_MODULES divisi_${name})
endfunction()

# divisi_test(NAME SOURCES sources... ALONE sources... LINK targets... LABELS labels... PROPERTIES name value...)
#
# One GoogleTest program, one ctest entry a test. A preset that checks only some folders (tsan)
# lists them in DIVISI_TEST_FOLDERS; the others' programs then wait until somebody asks for them.
# Tests are listed when ctest starts, not while building: a sanitized program may need an environment
# that only ctest gives it.
#
# Only a hang ever reaches the time limit. The long forms of tests (DIVISI_SOAK=1, which CMake must
# see as well) take many minutes, above all under a sanitizer.
if("$ENV{DIVISI_SOAK}" STREQUAL "1")
  set(DIVISI_TEST_TIMEOUT 7200)
else()
  set(DIVISI_TEST_TIMEOUT 300)
endif()
add_custom_target(divisi_tests)
function(divisi_test name)
  if(NOT DIVISI_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;ALONE;LINK;LABELS;PROPERTIES" ${ARGN})
  add_executable(${name} ${ARG_SOURCES} ${ARG_ALONE})
  together(${name} ${ARG_ALONE})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE ${ARG_LINK} GTest::gmock_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(NOT DIVISI_SANITIZE STREQUAL "thread")
    # What is tested is optimised. The tests themselves compile in half the time without; not so
    # under ThreadSanitizer, where they would run the slower.
    target_compile_options(${name} PRIVATE -O0)
  endif()

  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE folder)
  if(DIVISI_TEST_FOLDERS AND NOT folder IN_LIST DIVISI_TEST_FOLDERS)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    return()
  endif()
  add_dependencies(divisi_tests ${name})
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
    PROPERTIES TIMEOUT ${DIVISI_TEST_TIMEOUT} LABELS "${ARG_LABELS}" ${ARG_PROPERTIES})
endfunction()

# divisi_fuzzer(NAME sources... LINK modules... CORPUS folder)
#
# One libFuzzer program, and a ctest entry that runs it for DIVISI_FUZZ_SECONDS over the seeds in
# the folder. New inputs go to the build tree; the seeds are only read.
set(DIVISI_FUZZ_SECONDS 5 CACHE STRING "How long ctest lets each fuzzer look for new inputs")
add_custom_target(divisi_fuzzers)
function(divisi_fuzzer name)
  cmake_parse_arguments(ARG "" "CORPUS" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE ${ARG_LINK})
  target_compile_options(${name} PRIVATE -fsanitize=fuzzer-no-link)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
  add_dependencies(divisi_fuzzers ${name})
  set(found ${CMAKE_BINARY_DIR}/fuzz/found/${name})
  file(MAKE_DIRECTORY ${found})
  set(seeds "")
  if(ARG_CORPUS)
    cmake_path(ABSOLUTE_PATH ARG_CORPUS BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} OUTPUT_VARIABLE seeds)
  endif()
  add_test(NAME fuzz.${name} COMMAND ${name} -max_total_time=${DIVISI_FUZZ_SECONDS} -timeout=10
    -rss_limit_mb=1024 -verbosity=0 -print_final_stats=1 -artifact_prefix=${CMAKE_BINARY_DIR}/fuzz/${name}- ${found} ${seeds})
  math(EXPR limit "${DIVISI_FUZZ_SECONDS} * 2 + 120")
  set_tests_properties(fuzz.${name} PROPERTIES LABELS fuzz TIMEOUT ${limit})
endfunction()

# libdivisi.so holds every module. It is the only thing that programs, packages and
# Python link, so that the router and the task are one object in a process.
function(divisi_shared_library)
  get_property(modules GLOBAL PROPERTY DIVISI_MODULES)
  file(WRITE ${CMAKE_BINARY_DIR}/empty.cc "")
  add_library(divisi SHARED ${CMAKE_BINARY_DIR}/empty.cc)
  add_library(divisi::divisi ALIAS divisi)
  # As an override of the target, because modules also name each other as plain libraries.
  list(JOIN modules "," comma_modules)
  set_property(TARGET divisi PROPERTY LINK_LIBRARY_OVERRIDE "WHOLE_ARCHIVE,${comma_modules}")
  target_link_libraries(divisi PRIVATE ${modules})
  target_include_directories(divisi INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
  target_compile_features(divisi INTERFACE cxx_std_20)
  set_target_properties(divisi PROPERTIES SOVERSION 0)
  if(NOT SKBUILD)
    # A wheel cannot hold the links between the names of a library: one file is enough there.
    set_target_properties(divisi PROPERTIES VERSION ${PROJECT_VERSION})
  endif()
  # Hidden visibility keeps our own internals in; the map also keeps in what templates of the
  # standard library and third-party static code would add.
  set(map ${PROJECT_SOURCE_DIR}/cmake/libdivisi.map)
  target_link_options(divisi PRIVATE -Wl,--version-script=${map})
  set_target_properties(divisi PROPERTIES LINK_DEPENDS ${map})
  if(NOT (CMAKE_CXX_COMPILER_ID MATCHES Clang AND DIVISI_SANITIZE))
    # clang leaves the sanitizer's own symbols of a shared library to the program.
    target_link_options(divisi PRIVATE -Wl,--no-undefined)
  endif()
endfunction()
