/* An MPI program of the tests: ring, any-source, probes, a cancel, collectives, messages of many sizes; every byte is
 * checked. Ends with 0 on rank 0 saying "good". */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;

static void check(int condition, const char* what) {
  if (condition) return;
  fprintf(stderr, "rank %d: %s\n", rank, what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static void fill(char* bytes, int length, int seed) {
  int i;
  for (i = 0; i < length; ++i) bytes[i] = (char)(i * 131 + seed * 7919 + (i >> 8));
}

static void around(int length) {
  char* out = malloc((size_t)length + 1);
  char* in = malloc((size_t)length + 1);
  char* want = malloc((size_t)length + 1);
  MPI_Status status;
  int count;
  fill(out, length, rank);
  fill(want, length, (rank + ranks - 1) % ranks);
  MPI_Sendrecv(out, length, MPI_CHAR, (rank + 1) % ranks, length % 1000, in, length, MPI_CHAR,
               (rank + ranks - 1) % ranks, length % 1000, MPI_COMM_WORLD, &status);
  MPI_Get_count(&status, MPI_CHAR, &count);
  check(count == length && memcmp(in, want, (size_t)length) == 0, "a message around the ring is wrong");
  free(out), free(in), free(want);
}

/* Ranks run ahead of each other: a receive from any source names the round by its tag. */
static void random_traffic(unsigned rounds) {
  unsigned i;
  srand(7); /* the same on every rank: all know who sends what to whom */
  for (i = 0; i < rounds; ++i) {
    const int from = rand() % ranks, to = rand() % ranks, tag = 1000 + (int)i % 30000, big = rand() % 10 == 0;
    const int length = big ? rand() % 300000 : rand() % 2000;
    const int way = rand() % 3;
    char* bytes = malloc((size_t)length + 1);
    char* want = malloc((size_t)length + 1);
    MPI_Request request = MPI_REQUEST_NULL;
    fill(want, length, (int)i);
    if (rank == from) {
      if (way == 1)
        MPI_Issend(want, length, MPI_CHAR, to, tag, MPI_COMM_WORLD, &request);
      else
        MPI_Isend(want, length, MPI_CHAR, to, tag, MPI_COMM_WORLD, &request);
    }
    if (rank == to) {
      MPI_Status status;
      int count;
      if (way == 2) {
        MPI_Message message;
        MPI_Mprobe(MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &message, &status);
        MPI_Get_count(&status, MPI_CHAR, &count);
        check(count == length && status.MPI_SOURCE == from, "a probe tells something wrong");
        MPI_Mrecv(bytes, length, MPI_CHAR, &message, &status);
      } else {
        MPI_Recv(bytes, length, MPI_CHAR, way == 0 ? from : MPI_ANY_SOURCE, way == 0 ? MPI_ANY_TAG : tag,
                 MPI_COMM_WORLD, &status);
        check(status.MPI_TAG == tag, "a tag is wrong");
      }
      check(memcmp(bytes, want, (size_t)length) == 0, "bytes are wrong");
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    free(bytes), free(want);
  }
}

static void cancelled(void) {
  char byte;
  int flag;
  MPI_Request request;
  MPI_Status status;
  MPI_Irecv(&byte, 1, MPI_CHAR, MPI_ANY_SOURCE, 999, MPI_COMM_WORLD, &request);
  MPI_Cancel(&request);
  MPI_Wait(&request, &status);
  MPI_Test_cancelled(&status, &flag);
  check(flag, "a receive was not cancelled");
}

static void collectives(void) {
  long sum = 0, mine = rank + 1;
  int i;
  int* all = malloc(sizeof(int) * (size_t)ranks);
  int* out = malloc(sizeof(int) * (size_t)ranks);
  MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  check(sum == (long)ranks * (ranks + 1) / 2, "a sum is wrong");
  for (i = 0; i < ranks; ++i) out[i] = rank * 1000 + i;
  MPI_Alltoall(out, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD);
  for (i = 0; i < ranks; ++i) check(all[i] == i * 1000 + rank, "an all-to-all is wrong");
  MPI_Barrier(MPI_COMM_WORLD);
  free(all), free(out);
}

int main(int argc, char** argv) {
  static const int lengths[] = {0, 1, 64, 4096, 32768, 32769, 1 << 20};
  const unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 200;
  size_t i;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (i = 0; i < sizeof lengths / sizeof *lengths; ++i) around(lengths[i]);
  cancelled();
  random_traffic(rounds);
  collectives();
  MPI_Finalize();
  if (rank == 0) printf("good\n");
  return 0;
}
