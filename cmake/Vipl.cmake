# libvipl: VIPL 1.0 for programs that are linked with -lvipl. Engine-owned memory is libviaduct's, so that what a program
# gets from adma_alloc there is known here.
add_library(vipl SHARED)
target_link_libraries(vipl PRIVATE $<BUILD_INTERFACE:viaduct-via> $<BUILD_INTERFACE:viaduct-net>
                      $<BUILD_INTERFACE:viaduct-nic> $<BUILD_INTERFACE:viaduct-base> viaduct)
target_include_directories(vipl PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
set(vipl_exports ${CMAKE_SOURCE_DIR}/cmake/vipl.map)
# Its threads and what it does at exit outlive dlclose().
target_link_options(vipl PRIVATE -Wl,--version-script=${vipl_exports} -Wl,-z,nodelete)
if(NOT VIADUCT_SANITIZE)
  target_link_options(vipl PRIVATE -Wl,--no-undefined)
endif()
set_target_properties(vipl PROPERTIES LINKER_LANGUAGE CXX VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
                      INSTALL_RPATH "$ORIGIN" LINK_DEPENDS ${vipl_exports})

configure_file(${CMAKE_SOURCE_DIR}/cmake/vipl.pc.in ${CMAKE_BINARY_DIR}/vipl.pc @ONLY)
install(TARGETS vipl EXPORT viaduct-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${CMAKE_BINARY_DIR}/vipl.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

add_subdirectory(${CMAKE_SOURCE_DIR}/examples)
