/* The copy engine's C interface under the name that programs written to it include. */
#include <viaduct/adma.h>
