// One process sends trains of UDP datagrams (UDP_SEGMENT) to another (UDP_GRO) over loopback, and both print the
// processor seconds that a GB of payload cost them: what the kernel takes for a pattern of calls, without any protocol.
//
//   kernel_cost PACKETS TRAINS REGION VECTORS PLACED SECONDS
//
// PACKETS  in a train; TRAINS in one sendmmsg; REGION bytes that the payload is taken from in turn.
// VECTORS  0: a train is one piece of memory; 1: header, payload and trailer of each packet lie in places of their own.
// PLACED   0: received into a buffer; 1: and copied from there to a region; 2: received into the region, by vectors.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/udp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { HEADER = 64, PAYLOAD = 4078, TRAILER = 8, PACKET = HEADER + PAYLOAD + TRAILER };
enum { MOST_TRAINS = 8, MOST_PACKETS = 15, TRAIN_BYTES = 1 << 16, PLACES = 8 << 20 };

struct pattern {
  int packets, trains, vectors, placed;
  size_t region;
  double seconds;
};

struct batch {
  struct mmsghdr messages[MOST_TRAINS];
  struct iovec pieces[MOST_TRAINS][3 * MOST_PACKETS];
  char controls[MOST_TRAINS][CMSG_SPACE(sizeof(int))];
};

static double seconds_of(clockid_t clock) {
  struct timespec at;
  clock_gettime(clock, &at);
  return at.tv_sec + 1e-9 * at.tv_nsec;
}

static char *memory(size_t bytes) {
  char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (at == MAP_FAILED) {
    perror("mmap");
    exit(1);
  }
  memset(at, 1, bytes);
  return at;
}

static void stay_on(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor % sysconf(_SC_NPROCESSORS_ONLN), &set);
  sched_setaffinity(0, sizeof set, &set);
}

// Fill the pieces of one train: all in one, or three for each packet with the payload in a region. Return how many.
static int fill(struct iovec *pieces, const struct pattern *pattern, int in_vectors, char *arena, char *region,
                size_t *at, size_t region_bytes) {
  if (!in_vectors) {
    pieces[0] = (struct iovec){arena, TRAIN_BYTES - 1};
    return 1;
  }
  int count = 0;
  for (int packet = 0; packet < pattern->packets; packet++) {
    pieces[count++] = (struct iovec){arena, HEADER};
    pieces[count++] = (struct iovec){region + *at, PAYLOAD};
    pieces[count++] = (struct iovec){arena + HEADER, TRAILER};
    arena += HEADER + TRAILER;
    *at = *at + 2 * PAYLOAD > region_bytes ? 0 : *at + PAYLOAD;
  }
  return count;
}

static void receive(int descriptor, const struct pattern *pattern) {
  static struct batch batch;
  char *arena = memory(MOST_TRAINS * TRAIN_BYTES), *region = memory(PLACES);
  size_t at = 0;
  double used = 0, payload = 0;
  for (int began = 0, ended = 0; !ended; began = 1) {
    for (int i = 0; i < pattern->trains; i++) {
      struct msghdr *header = &batch.messages[i].msg_hdr;
      header->msg_iov = batch.pieces[i];
      header->msg_iovlen =
          fill(batch.pieces[i], pattern, pattern->placed == 2, arena + i * TRAIN_BYTES, region, &at, PLACES);
      header->msg_control = batch.controls[i];
      header->msg_controllen = sizeof batch.controls[i];
    }
    int count = recvmmsg(descriptor, batch.messages, pattern->trains, MSG_WAITFORONE, NULL);
    if (count <= 0) {
      perror("recvmmsg");
      exit(1);
    }
    if (!began) used = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < count; i++) {
      int length = batch.messages[i].msg_len;
      ended |= length == 1;
      for (int packet = 0; packet < length / PACKET; packet++, payload += PAYLOAD) {
        if (pattern->placed != 1) continue;
        memcpy(region + at, arena + i * TRAIN_BYTES + packet * PACKET + HEADER, PAYLOAD);
        at = at + 2 * PAYLOAD > PLACES ? 0 : at + PAYLOAD;
      }
    }
  }
  printf("%.4f\n", (seconds_of(CLOCK_PROCESS_CPUTIME_ID) - used) / (payload / 1e9));
}

static void send_for(const struct pattern *pattern, const struct sockaddr_in *to) {
  static struct batch batch;
  int descriptor = socket(AF_INET, SOCK_DGRAM, 0);
  connect(descriptor, (const void *)to, sizeof *to);
  char *arena = memory(MOST_TRAINS * TRAIN_BYTES), *region = memory(pattern->region + TRAIN_BYTES);
  size_t at = 0;
  double began = seconds_of(CLOCK_MONOTONIC), used = seconds_of(CLOCK_PROCESS_CPUTIME_ID), payload = 0;
  while (seconds_of(CLOCK_MONOTONIC) < began + pattern->seconds) {
    for (int i = 0; i < pattern->trains; i++) {
      struct msghdr *header = &batch.messages[i].msg_hdr;
      header->msg_iov = batch.pieces[i];
      header->msg_iovlen = fill(batch.pieces[i], pattern, pattern->vectors, arena + i * TRAIN_BYTES, region, &at,
                                pattern->region);
      if (!pattern->vectors) batch.pieces[i][0].iov_len = pattern->packets * PACKET;
      header->msg_control = batch.controls[i];
      header->msg_controllen = CMSG_SPACE(sizeof(short));
      struct cmsghdr *control = CMSG_FIRSTHDR(header);
      *control = (struct cmsghdr){CMSG_LEN(sizeof(short)), SOL_UDP, UDP_SEGMENT};
      *(unsigned short *)CMSG_DATA(control) = PACKET;
    }
    int count = sendmmsg(descriptor, batch.messages, pattern->trains, 0);
    if (count <= 0) {
      perror("sendmmsg");
      exit(1);
    }
    payload += (double)count * pattern->packets * PAYLOAD;
  }
  double took = seconds_of(CLOCK_MONOTONIC) - began;
  printf("%.2f %.4f ", payload * 8e-9 / took, (seconds_of(CLOCK_PROCESS_CPUTIME_ID) - used) / (payload / 1e9));
  fflush(stdout);
  usleep(100000);
  send(descriptor, "", 1, 0);
}

int main(int count, char **words) {
  if (count != 7) {
    fprintf(stderr, "usage: %s PACKETS TRAINS REGION VECTORS PLACED SECONDS\n", words[0]);
    return 2;
  }
  struct pattern pattern = {atoi(words[1]), atoi(words[2]), atoi(words[4]), atoi(words[5]), atol(words[3]), atof(words[6])};
  if (pattern.packets < 1 || pattern.packets > MOST_PACKETS || pattern.trains < 1 || pattern.trains > MOST_TRAINS) {
    fprintf(stderr, "%s: 1 to %d packets, 1 to %d trains\n", words[0], MOST_PACKETS, MOST_TRAINS);
    return 2;
  }
  int descriptor = socket(AF_INET, SOCK_DGRAM, 0), yes = 1, bytes = 4 << 20;
  setsockopt(descriptor, SOL_UDP, UDP_GRO, &yes, sizeof yes);
  setsockopt(descriptor, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
  struct timeval longest = {.tv_sec = 5};  // if the sender died, or its last datagram was dropped
  setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof longest);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof address;
  bind(descriptor, (void *)&address, length);
  getsockname(descriptor, (void *)&address, &length);
  if (fork() == 0) {
    stay_on(0);
    receive(descriptor, &pattern);
    return 0;
  }
  close(descriptor);
  stay_on(1);
  send_for(&pattern, &address);
  int status;
  wait(&status);
  return status;
}
