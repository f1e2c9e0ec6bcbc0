# viaduct-plain-sockets: an ordinary program with sockets that the benchmarks run, accelerated and not. It is linked with
# nothing of ours.
add_executable(viaduct-plain-sockets ${CMAKE_SOURCE_DIR}/src/bench/plain_sockets/main.cpp)
target_include_directories(viaduct-plain-sockets PRIVATE ${CMAKE_SOURCE_DIR}/src)
add_dependencies(viaduct-command viaduct-plain-sockets)
target_compile_definitions(viaduct-bench PRIVATE VIADUCT_LIBDIR="${CMAKE_INSTALL_LIBDIR}")
install(TARGETS viaduct-plain-sockets RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
