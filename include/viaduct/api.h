/* What the public headers share: the mark on names that the library exports. */
#ifndef VIADUCT_API_H
#define VIADUCT_API_H

#define VIADUCT_API __attribute__((visibility("default")))

#endif
