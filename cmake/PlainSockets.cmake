# viaduct-plain-sockets: an ordinary program with sockets that the benchmarks run, accelerated and not. It is linked with
# nothing of ours. It is not a command for users: it is installed where programs for programs are.
add_executable(viaduct-plain-sockets ${CMAKE_SOURCE_DIR}/src/bench/plain_sockets/main.cpp)
target_include_directories(viaduct-plain-sockets PRIVATE ${CMAKE_SOURCE_DIR}/src)
add_dependencies(viaduct-command viaduct-plain-sockets)
target_compile_definitions(viaduct-bench PRIVATE VIADUCT_LIBDIR="${CMAKE_INSTALL_LIBDIR}"
                           VIADUCT_OWN_FOLDER="${VIADUCT_OWN_FOLDER}")
install(TARGETS viaduct-plain-sockets RUNTIME DESTINATION ${VIADUCT_OWN_FOLDER})
