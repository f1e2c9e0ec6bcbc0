// A driver library from before the functions we need.
extern "C" __attribute__((visibility("default"))) int cuInit(unsigned) {
  return 0;
}
