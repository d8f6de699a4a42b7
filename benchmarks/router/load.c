/* A closed-loop client for measuring routers: as many connections as asked for, each with one request at a time.

   load [options] PORT CONNECTIONS SECONDS PROMPT_BYTES TOKENS STREAM THINK_US [extra members of the body, with a comma before them]

   With STREAM 1 each event counts as a token, and what the engine wrote into it (its clock, see engines.c) gives the time
   from the engine to here. THINK_US: pause before a connection's next request. The first tenth of the time, and at least
   one request of each connection, is in `all_` figures only. Prompts differ, in length too (by up to 3 %), and the first half of a
   prompt is shared by one in sixteen. Prints one line of JSON; times in microseconds.

   -a       answers may say anything: the engines are not ours
   -o N     the first N of the 128 prompts are sent once, all are counted; SECONDS says nothing
   -m SEED  conversations: 4 messages, 46 above 4 KiB, that are all of 64 texts: the last two are any, those before them are
            as in one of sixteen conversations, so that hardly a prompt comes twice and no message is new for long
   -n SEED -f FILE  prompts that were never sent with another seed, each a part of FILE: plain ASCII without \ and " and ] */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BODIES = 128, GROUPS = 16, ROOM = 1 << 18, POOL = 64, MESSAGES_MOST = 46 };

struct line {
  int socket, body, busy, status, chunked, tokens, answered;
  size_t sent, size, left; /* left: bytes of the body that are still to come, or of the chunk */
  long long start_ns, first_ns, wake_ns;
  char data[ROOM], text[ROOM]; /* as it came, and an event that is not whole yet */
  size_t text_size;
};

struct times { double *us; size_t count, room; };

static struct times ttft, delay, whole;
static char *requests[BODIES];
static size_t request_sizes[BODIES];
static long long tokens_seen, errors, done, counted_from_ns, all_requests, all_tokens;
static int poller, port, stream, tokens_wanted, next_body, counting, any_answer, once_each;
static unsigned messages_seed, new_seed;
static const char *file;
static char *pool[POOL];
static size_t message_bytes, message_at[MESSAGES_MOST];
static int messages;

static long long now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void note(struct times *times, long long ns) {
  if (!counting) return;
  if (times->count == times->room) times->us = realloc(times->us, (times->room = times->room * 2 + 4096) * sizeof *times->us);
  times->us[times->count++] = ns / 1000.0;
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double quantile(struct times *times, double q) {
  return times->count ? times->us[(size_t)(q * (times->count - 1) + 0.5)] : -1;
}

static const char *read_file(size_t *size) {
  FILE *from = file ? fopen(file, "r") : NULL;
  if (!from) { perror("-f"); exit(1); }
  char *text = malloc(1 << 22);
  *size = fread(text, 1, 1 << 22, from);
  fclose(from);
  return text;
}

/* A body's messages, with room for their texts; `write_messages` fills them. */
static char *empty_messages(void) {
  char *text = malloc(messages * (message_bytes + 64)), *end = text;
  for (int i = 0; i < messages; i++) {
    end += sprintf(end, "%s", i ? "\"},{\"role\":\"user\",\"content\":\"" : "");
    message_at[i] = end - text;
    memset(end, '.', message_bytes);
    end += message_bytes;
  }
  *end = 0;
  return text;
}

static void write_messages(int body) {
  const char *mark = "\"content\":\"";
  char *text = memmem(requests[body], request_sizes[body], mark, strlen(mark)) + strlen(mark);
  int group = rand_r(&messages_seed) % GROUPS;
  for (int i = 0; i < messages; i++) {
    int which = i < messages - 2 ? group * 7 + i * 13 : rand_r(&messages_seed);
    memcpy(text + message_at[i], pool[which % POOL], message_bytes);
  }
}

static void write_bodies(size_t prompt_bytes, const char *extra) {
  size_t file_size = 0;
  const char *text = new_seed ? read_file(&file_size) : NULL;
  unsigned place_seed = new_seed;
  if (new_seed && file_size < 2 * prompt_bytes) { fprintf(stderr, "%s is too short\n", file); exit(1); }
  static const char *words[] = {"river", "stone", "lantern", "of", "the", "quiet", "morning", "carries", "seven", "bridges", "and", "amber", "glass", "toward", "winter", "harbour"};
  char *prompt = malloc(prompt_bytes + 64), *whole = NULL;
  if (messages_seed) {
    messages = prompt_bytes > 4096 ? MESSAGES_MOST : 4;
    message_bytes = prompt_bytes / messages;
    for (int n = 0; n < POOL; n++) {
      unsigned seed = 5000 + n;
      size_t size = 0;
      pool[n] = malloc(message_bytes + 64);
      while (size < message_bytes) size += sprintf(pool[n] + size, "%s ", words[rand_r(&seed) % 16]);
    }
    whole = empty_messages();
  }
  for (int n = 0; n < BODIES; n++) {
    size_t wanted = prompt_bytes - (size_t)(n * 37 % 64) * prompt_bytes / 2048, size = 0;
    unsigned seed = 77 + n % GROUPS;
    while (size < wanted) {
      if (size >= wanted / 2 && seed < 1000) seed = 1000 + n;
      size += sprintf(prompt + size, "%s ", words[rand_r(&seed) % 16]);
    }
    prompt[wanted] = 0;
    if (text) {
      int head = sprintf(prompt, "%u, %d: ", new_seed, n);
      memcpy(prompt + head, text + rand_r(&place_seed) % (file_size - wanted), wanted - head);
    }
    if (whole) wanted = strlen(whole);
    char *body = malloc(wanted + 512 + strlen(extra));
    int length = sprintf(body, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}],\"max_tokens\":%d,\"temperature\":0,\"stream\":%s%s}", whole ? whole : prompt, tokens_wanted, stream ? "true" : "false", extra);
    requests[n] = malloc(length + 512);
    int head = sprintf(requests[n], "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAccept: application/json\r\nUser-Agent: load/1\r\nAuthorization: Bearer bench-key-0123456789\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", port, length);
    memcpy(requests[n] + head, body, length);
    request_sizes[n] = head + length;
    free(body);
  }
  free(prompt);
}

static void dial(struct line *line) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int on = 1;
  line->socket = socket(AF_INET, SOCK_STREAM, 0);
  setsockopt(line->socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (connect(line->socket, (struct sockaddr *)&address, sizeof address)) { perror("connect"); exit(1); }
  fcntl(line->socket, F_SETFL, O_NONBLOCK);
  struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = line};
  epoll_ctl(poller, EPOLL_CTL_ADD, line->socket, &event);
}

static void send_rest(struct line *line) {
  while (line->busy && line->sent < request_sizes[line->body]) {
    ssize_t sent = send(line->socket, requests[line->body] + line->sent, request_sizes[line->body] - line->sent, MSG_NOSIGNAL);
    if (sent < 0) return;
    line->sent += sent;
  }
}

static int may_ask(long long now, long long end_ns) {
  return once_each ? next_body < once_each : now < end_ns;
}

static void ask(struct line *line) {
  line->body = next_body++ % BODIES;
  if (messages_seed) write_messages(line->body); /* one that is being sent still: its messages change, not its form */
  line->busy = 1;
  line->sent = line->size = line->left = line->text_size = 0;
  line->status = line->chunked = line->tokens = 0;
  line->first_ns = 0;
  line->start_ns = now_ns();
  send_rest(line);
}

static void end(struct line *line, int good, long long think_ns) {
  long long now = now_ns();
  line->busy = 0;
  line->answered = 1;
  all_requests++;
  line->wake_ns = now + think_ns;
  if (counting) {
    done++;
    if (!good && errors++ < 2) fprintf(stderr, "status %d, %d tokens: %.300s\n", line->status, line->tokens, line->data);
  }
  note(&whole, now - line->start_ns);
}

static void see_event(struct line *line, const char *event, size_t size) {
  if (size < 8 || memcmp(event, "data: {", 7)) return;
  long long now = now_ns();
  const char *said = memmem(event, size, "\"content\":\" ", 12);
  if (!said) return; /* the role */
  if (!line->first_ns) { line->first_ns = now; note(&ttft, now - line->start_ns); }
  line->tokens++;
  all_tokens++;
  if (counting) tokens_seen++;
  note(&delay, now - atoll(said + 12));
}

/* A router may put several events into one chunk, or cut one in two: so events are looked for behind the framing. */
static void see_text(struct line *line, const char *text, size_t size) {
  if (line->text_size + size > ROOM) { line->text_size = 0; return; }
  memcpy(line->text + line->text_size, text, size);
  line->text_size += size;
  char *from = line->text, *past = line->text + line->text_size, *end;
  while ((end = memmem(from, past - from, "\n\n", 2))) {
    see_event(line, from, end - from);
    from = end + 2;
  }
  line->text_size = past - from;
  memmove(line->text, from, line->text_size);
}

/* Takes what has come; returns whether the response is at its end, and whether it is what it should be. */
static int read_answer(struct line *line, int *good) {
  size_t at = 0;
  int ended = 0;
  if (!line->status) {
    char *end = memmem(line->data, line->size, "\r\n\r\n", 4), *length;
    if (!end) return 0;
    *end = 0;
    line->status = atoi(line->data + 9);
    line->chunked = strcasestr(line->data, "\r\ntransfer-encoding: chunked") != NULL;
    if ((length = strcasestr(line->data, "\r\ncontent-length:"))) line->left = strtoul(length + 17, NULL, 10);
    at = end + 4 - line->data;
  }
  if (line->chunked) {
    while (!ended && at < line->size) {
      char *mark = memmem(line->data + at, line->size - at, "\r\n", 2);
      if (!mark) break;
      size_t size = strtoul(line->data + at, NULL, 16), from = mark + 2 - line->data;
      if (from + size + 2 > line->size) break;
      see_text(line, line->data + from, size);
      at = from + size + 2;
      ended = size == 0;
    }
    *good = line->status == 200 && line->tokens == tokens_wanted;
    if (any_answer && !stream) {
      *good = line->status == 200 && memmem(line->text, line->text_size, "\"content\":\"", 11);
    }
  } else if (line->size - at >= line->left) {
    long long now = now_ns();
    ended = 1;
    *good = line->status == 200 && !stream && (any_answer || memmem(line->data + at, line->left, "\"content\":\"The quick", 20));
    note(&ttft, now - line->start_ns);
    at = line->size;
  } else if (at) {
    line->size -= at;
    memmove(line->data, line->data + at, line->size);
    return 0;
  }
  line->size -= at;
  memmove(line->data, line->data + at, line->size);
  return ended;
}

static void receive(struct line *line, long long think_ns) {
  for (;;) {
    ssize_t got = recv(line->socket, line->data + line->size, ROOM - 1 - line->size, 0);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
      if (line->busy) end(line, 0, think_ns);
      close(line->socket);
      dial(line);
      return;
    }
    line->size += got;
    line->data[line->size] = 0;
    int good = 0;
    if (!line->busy) line->size = 0;
    else if (read_answer(line, &good)) end(line, good, think_ns);
  }
}

int main(int count, char **words) {
  for (int option; (option = getopt(count, words, "+ao:m:n:f:")) != -1;) {
    if (option == 'a') any_answer = 1;
    else if (option == 'o') { once_each = atoi(optarg); counting = 1; }
    else if (option == 'm') messages_seed = strtoul(optarg, NULL, 10);
    else if (option == 'n') new_seed = strtoul(optarg, NULL, 10);
    else if (option == 'f') file = optarg;
    else return 2;
  }
  words += optind - 1;
  count -= optind - 1;
  if (count < 8) { fprintf(stderr, "see the head of load.c\n"); return 2; }
  signal(SIGPIPE, SIG_IGN);
  port = atoi(words[1]);
  int connections = atoi(words[2]);
  long long seconds_ns = atof(words[3]) * 1e9, think_ns = atoll(words[7]) * 1000;
  tokens_wanted = atoi(words[5]);
  stream = atoi(words[6]);
  write_bodies(atoi(words[4]), count > 8 ? words[8] : "");
  poller = epoll_create1(0);
  struct line *lines = calloc(connections, sizeof *lines);
  for (int i = 0; i < connections; i++) dial(&lines[i]);
  struct epoll_event events[256];
  long long begin_ns = counted_from_ns = now_ns(), end_ns = begin_ns + seconds_ns, stuck_ns = end_ns + 20000000000LL;
  for (int busy = 1; busy;) {
    long long now = now_ns();
    busy = 0;
    int answered = 0;
    for (int i = 0; i < connections; i++) {
      struct line *line = &lines[i];
      if (!line->busy && may_ask(now, end_ns) && line->wake_ns <= now) ask(line);
      busy += line->busy || may_ask(now, end_ns);
      answered += line->answered;
    }
    if (!counting && answered == connections && now - begin_ns > seconds_ns / 10) { counting = 1; counted_from_ns = now; }
    if (now > stuck_ns) { errors += busy; break; }
    struct timespec wait = {0, think_ns ? 50000 : 20000000};
    int ready = epoll_pwait2(poller, events, 256, &wait, NULL);
    for (int i = 0; i < ready; i++) {
      struct line *line = events[i].data.ptr;
      send_rest(line);
      receive(line, think_ns);
      if (!line->busy && !think_ns && may_ask(now, end_ns)) ask(line);
    }
  }
  double took_s = (now_ns() - counted_from_ns) / 1e9;
  struct times *all[] = {&ttft, &delay, &whole};
  for (int i = 0; i < 3; i++) qsort(all[i]->us, all[i]->count, sizeof(double), by_size);
  printf("{\"requests\": %lld, \"errors\": %lld, \"seconds\": %.4f, \"tokens\": %lld, \"all_requests\": %lld, \"all_tokens\": %lld, \"ttft_us\": [%.1f, %.1f], \"delay_us\": [%.1f, %.1f], \"whole_us\": [%.1f, %.1f]}\n",
         done, errors, took_s, tokens_seen, all_requests, all_tokens, quantile(&ttft, 0.5), quantile(&ttft, 0.99), quantile(&delay, 0.5), quantile(&delay, 0.99), quantile(&whole, 0.5), quantile(&whole, 0.99));
  return 0;
}
