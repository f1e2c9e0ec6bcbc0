# What `cmake --install` does besides copying. Programs and libraries of an optimised build are stripped: most of them is
# symbols. -DVIADUCT_STRIP=OFF keeps those, for packages that split them off; other builds keep them anyway. And it
# leaves a list of what was installed, with a program that removes it: PREFIX/libexec/viaduct/uninstall.
set(strip_by_default OFF)
if(CMAKE_BUILD_TYPE MATCHES "Rel" AND NOT VIADUCT_SANITIZE)
  set(strip_by_default ON)
endif()
option(VIADUCT_STRIP "Strip what is installed" ${strip_by_default})
set(VIADUCT_OWN_FOLDER ${CMAKE_INSTALL_LIBEXECDIR}/viaduct)

# Before the first rule: from here on everything is stripped, and the folders that are not there yet are ours to remove.
function(viaduct_begin_install)
  set(folders "")
  foreach(folder ${CMAKE_INSTALL_BINDIR} ${CMAKE_INSTALL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_LIBDIR}/cmake/viaduct ${CMAKE_INSTALL_LIBDIR}/libfabric
                 ${CMAKE_INSTALL_INCLUDEDIR}/viaduct ${VIADUCT_OWN_FOLDER} ${CMAKE_INSTALL_MANDIR}/man1
                 ${CMAKE_INSTALL_MANDIR}/man3)
    while(folder AND NOT IS_ABSOLUTE "${folder}")
      list(APPEND folders ${folder})
      get_filename_component(folder "${folder}" DIRECTORY)
    endwhile()
  endforeach()
  list(REMOVE_DUPLICATES folders)
  list(SORT folders ORDER DESCENDING)  # what is inside comes first
  if(VIADUCT_STRIP)
    install(CODE "set(CMAKE_INSTALL_DO_STRIP TRUE)")
  endif()
  install(CODE "set(viaduct_own_folder \"${VIADUCT_OWN_FOLDER}\")
set(viaduct_folders \"${folders}\")
include(\"${CMAKE_SOURCE_DIR}/cmake/install/begin.cmake\")")
endfunction()

# After the last.
function(viaduct_end_install)
  file(RELATIVE_PATH up /prefix/${VIADUCT_OWN_FOLDER} /prefix)
  configure_file(${CMAKE_SOURCE_DIR}/cmake/install/uninstall.in ${CMAKE_BINARY_DIR}/uninstall @ONLY)
  install(PROGRAMS ${CMAKE_BINARY_DIR}/uninstall DESTINATION ${VIADUCT_OWN_FOLDER})
  install(CODE "include(\"${CMAKE_SOURCE_DIR}/cmake/install/end.cmake\")")
endfunction()
