#include <viaduct/version.h>

const char* viaduct_version(void) {
  return VIADUCT_VERSION;
}
