# Run by `cmake --install` before it copies anything: which of the folders it is about to make. What an earlier
# installation made is ours still.
cmake_minimum_required(VERSION 3.23)
set(viaduct_root "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}")
set(viaduct_made "")
set(viaduct_earlier "")
if(EXISTS "${viaduct_root}/${viaduct_own_folder}/folders")
  file(STRINGS "${viaduct_root}/${viaduct_own_folder}/folders" viaduct_earlier)
endif()
foreach(viaduct_folder IN LISTS viaduct_folders)
  if(viaduct_folder IN_LIST viaduct_earlier OR NOT EXISTS "${viaduct_root}/${viaduct_folder}")
    list(APPEND viaduct_made "${viaduct_folder}")
  endif()
endforeach()
