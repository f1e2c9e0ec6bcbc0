/* A program that no preloaded library gets into: so many bytes back, on a descriptor that it inherited. */
#include <stdlib.h>
#include <unistd.h>

int main(int count, char** arguments) {
  if (count != 3) return 2;
  const int fd = atoi(arguments[1]);
  for (int i = atoi(arguments[2]); i > 0; --i) {
    char byte;
    if (read(fd, &byte, 1) != 1) return 3;
    if (write(fd, &byte, 1) != 1) return 4;
  }
  return 0;
}
