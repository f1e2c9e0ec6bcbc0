/* The extensions of MX under the name that programs include. */
#include <viaduct/mx_extensions.h>
