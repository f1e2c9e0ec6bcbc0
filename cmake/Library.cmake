# libviaduct: the rooms behind public doors, in one shared library; plus what a program outside the tree needs to use it.
set(VIADUCT_LIBRARY_ROOMS base copy)
add_library(viaduct SHARED ${CMAKE_SOURCE_DIR}/src/library/version.cpp)
target_compile_definitions(viaduct PRIVATE VIADUCT_BUILDING)
target_include_directories(viaduct PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>
                           $<BUILD_INTERFACE:${CMAKE_BINARY_DIR}/include> $<INSTALL_INTERFACE:include>)
foreach(room ${VIADUCT_LIBRARY_ROOMS})
  target_link_libraries(viaduct PRIVATE $<BUILD_INTERFACE:viaduct-${room}>)
endforeach()
set(exports ${CMAKE_SOURCE_DIR}/cmake/viaduct.map)
target_link_options(viaduct PRIVATE -Wl,--version-script=${exports})
if(NOT VIADUCT_SANITIZE)
  target_link_options(viaduct PRIVATE -Wl,--no-undefined)  # sanitizers find their run time in the program
endif()
set_target_properties(viaduct PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
                      LINK_DEPENDS ${exports})

configure_file(${CMAKE_SOURCE_DIR}/cmake/version.h.in ${CMAKE_BINARY_DIR}/include/viaduct/version.h @ONLY)
configure_file(${CMAKE_SOURCE_DIR}/cmake/viaduct.pc.in ${CMAKE_BINARY_DIR}/viaduct.pc @ONLY)

install(TARGETS viaduct EXPORT viaduct-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
# The doors whose functions an installed library exports; the others are for rooms of this tree.
set(VIADUCT_INSTALLED_HEADERS adma.h memnet.h mx_extensions.h myriexpress.h vipl.h viaduct/adma.h viaduct/api.h viaduct/copy.hpp
                              viaduct/memnet.hpp viaduct/mx_extensions.h viaduct/myriexpress.h viaduct/regions.hpp viaduct/vipl.h)
foreach(header ${VIADUCT_INSTALLED_HEADERS})
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${CMAKE_SOURCE_DIR}/include/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/${folder})
endforeach()
install(FILES ${CMAKE_BINARY_DIR}/include/viaduct/version.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/viaduct)
install(FILES ${CMAKE_BINARY_DIR}/viaduct.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(EXPORT viaduct-targets FILE viaduct-config.cmake NAMESPACE viaduct::
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/viaduct)
include(CMakePackageConfigHelpers)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/viaduct-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/viaduct-config-version.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/viaduct)
file(GLOB man_pages CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/man/*.[137])
foreach(page ${man_pages})
  string(REGEX REPLACE ".*\\." "" section ${page})
  install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
endforeach()
