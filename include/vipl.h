/* VIPL 1.0 under the name that programs written to it include. */
#include <viaduct/vipl.h>
