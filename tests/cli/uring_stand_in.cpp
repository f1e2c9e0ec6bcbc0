// A library whose name starts like liburing's: what `viaduct doctor` looks for in a program.
extern "C" __attribute__((visibility("default"))) int viaduct_test_uring_stand_in();
int viaduct_test_uring_stand_in() {
  return 0;
}
