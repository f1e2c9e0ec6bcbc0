/* MX under the name that programs written to it include. */
#include <viaduct/myriexpress.h>
