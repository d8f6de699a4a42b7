/* Fake engines for measuring routers: vLLM's HTTP as far as a router sees it, in one thread, on any number of ports.

   engines [-t SOCKET] PORT...

   POST /v1/chat/completions and /v1/completions are answered at once; a streamed answer has one event per token, the
   next one `pace` later. A body with "do_remote_decode":true gets kv_transfer_params. GET /pace?us=N sets the pace,
   GET /counts says {"prefill": legs, "answers": others} since the last time it was asked. Everything is written with one
   send() per event, as an engine's server does.

   With -t each engine tells of its KV as vLLM does, through the process that listens at SOCKET (teller.py): a prompt that
   an engine has not had before is shown to it, as is each /tokenize, and everything waits for its answer (the two have one
   core in common). It answers a prompt with "TOKENS HITS CLEARED": of how many tokens whole blocks are found if the prompt
   comes again, how many were found now, and whether all that the engine held was dropped before. A prompt is known again
   by its text up to the first "]", of which the load's texts have none. Each engine's /metrics count what was found. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { HEAD_MOST = 16384, TOKENS_DEFAULT = 16, KNOWN = 1 << 16 };

struct line {                 /* one connection, or one listening socket */
  int socket, listens, chat, closed, queued, engine;
  int tokens_left;            /* of the stream under way; 0: none is */
  char *in, *out;
  size_t in_size, in_room, out_size, out_sent, out_room;
  long long due_ns;
  struct line *next;          /* in the queue of those that wait for their next token */
};

struct engine {               /* what it has had, and what its counters show */
  struct { unsigned long long name; int tokens; } known[KNOWN];
  int known_count;
  long long prompt_tokens, hit_tokens;
};

static int poller, teller = -1;
static struct engine *engines;
static long long pace_ns, prefills, answers, serial;
static struct line *first, *last;

static long long now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void watch(struct line *line, int operation, unsigned events) {
  struct epoll_event event = {.events = events, .data.ptr = line};
  epoll_ctl(poller, operation, line->socket, &event);
}

static void push_out(struct line *line) {
  while (line->out_sent < line->out_size) {
    ssize_t sent = send(line->socket, line->out + line->out_sent, line->out_size - line->out_sent, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno != EAGAIN) line->closed = 1;
      else watch(line, EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT);
      return;
    }
    line->out_sent += sent;
  }
  line->out_size = line->out_sent = 0;
}

static void say(struct line *line, const char *text, size_t size) {
  if (line->out_size + size > line->out_room) {
    line->out_room = (line->out_size + size) * 2;
    line->out = realloc(line->out, line->out_room);
  }
  memcpy(line->out + line->out_size, text, size);
  line->out_size += size;
  push_out(line);
}

static const char *date(void) {
  static char text[64];
  static time_t then;
  time_t now = time(NULL);
  if (now != then) {
    struct tm parts;
    strftime(text, sizeof text, "date: %a, %d %b %Y %H:%M:%S GMT\r\nserver: uvicorn\r\n", gmtime_r(&now, &parts));
    then = now;
  }
  return text;
}

static void answer(struct line *line, int status, const char *body, size_t size) {
  char *whole = malloc(size + 512);
  int head = sprintf(whole, "HTTP/1.1 %d %s\r\n%scontent-length: %zu\r\ncontent-type: application/json\r\n\r\n", status,
                     status == 200 ? "OK" : "Not Found", date(), size);
  memcpy(whole + head, body, size);
  say(line, whole, head + size);
  free(whole);
}

static void say_token(struct line *line) {
  char event[1024], chunk[1200];
  const char *end = line->tokens_left == 1 ? "\"length\"" : "null";
  int size = line->chat
    ? sprintf(event, "data: {\"id\":\"chatcmpl-%08llx\",\"object\":\"chat.completion.chunk\",\"created\":1790000000,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" %lld\"},\"logprobs\":null,\"finish_reason\":%s,\"token_ids\":null}]}\n\n", serial, now_ns(), end)
    : sprintf(event, "data: {\"id\":\"cmpl-%08llx\",\"object\":\"text_completion\",\"created\":1790000000,\"model\":\"m\",\"choices\":[{\"index\":0,\"text\":\" %lld\",\"logprobs\":null,\"finish_reason\":%s,\"stop_reason\":null}]}\n\n", serial, now_ns(), end);
  int whole = sprintf(chunk, "%x\r\n%.*s\r\n", size, size, event);
  if (--line->tokens_left == 0) whole += sprintf(chunk + whole, "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n");
  say(line, chunk, whole);
}

static void wait_for_token(struct line *line, long long due_ns) {
  line->due_ns = due_ns;
  line->next = NULL;
  line->queued = 1;
  if (last) last->next = line; else first = line;
  last = line;
}

static int number_behind(const char *body, size_t size, const char *key, int otherwise) {
  const char *found = memmem(body, size, key, strlen(key));
  return found ? atoi(found + strlen(key) + strspn(found + strlen(key), ": ")) : otherwise;
}

static int is_true(const char *body, size_t size, const char *key) {
  const char *found = memmem(body, size, key, strlen(key));
  return found && !strncmp(found + strlen(key) + strspn(found + strlen(key), ": "), "true", 4);
}

static void to_teller(const char *data, size_t size) {
  for (ssize_t sent; size; data += sent, size -= sent)
    if ((sent = send(teller, data, size, MSG_NOSIGNAL)) <= 0) { perror("teller"); exit(1); }
}

static void from_teller(char *data, size_t size) {
  for (ssize_t got; size; data += got, size -= got)
    if ((got = recv(teller, data, size, 0)) <= 0) { perror("teller"); exit(1); }
}

/* What the teller answers, ended by a zero; to be freed. */
static char *ask_teller(int engine, char what, const char *body, size_t size, size_t *length) {
  char head[24];
  to_teller(head, sprintf(head, "%2d %c %12zu\n", engine, what, size));
  to_teller(body, size);
  from_teller(head, 9);
  head[9] = 0;
  *length = strtoul(head, NULL, 10);
  char *told = malloc(*length + 1);
  from_teller(told, *length);
  told[*length] = 0;
  return told;
}

static unsigned long long name_of(const char *text, size_t size) {
  unsigned long long name = size + 1, word;
  for (; size; text += sizeof word < size ? sizeof word : size, size -= sizeof word < size ? sizeof word : size) {
    word = 0;
    memcpy(&word, text, sizeof word < size ? sizeof word : size);
    name = (name ^ word) * 0x9e3779b97f4a7c15ULL;
    name ^= name >> 29;
  }
  return name ? name : 1;
}

/* The prompt goes through the engine's prefix cache. */
static void look_up(int number, int chat, const char *body, size_t size) {
  struct engine *engine = &engines[number];
  const char *from = memmem(body, size, chat ? "\"messages\"" : "\"prompt\"", chat ? 10 : 8);
  const char *to = from ? memchr(from, ']', body + size - from) : NULL;
  unsigned long long name = to ? name_of(from, to - from) : name_of(body, size);
  unsigned place = name % KNOWN;
  while (engine->known[place].name && engine->known[place].name != name) place = (place + 1) % KNOWN;
  int tokens = engine->known[place].tokens, hits = tokens;
  if (!engine->known[place].name) {
    int cleared = 0;
    size_t length;
    char *told = ask_teller(number, chat ? 'C' : 'P', body, size, &length);
    sscanf(told, "%d %d %d", &tokens, &hits, &cleared);
    free(told);
    if (cleared || engine->known_count > KNOWN / 2) {
      memset(engine->known, 0, sizeof engine->known);
      engine->known_count = 0;
      place = name % KNOWN;
    }
    engine->known[place].name = name;
    engine->known[place].tokens = tokens;
    engine->known_count++;
  }
  engine->prompt_tokens += tokens;
  engine->hit_tokens += hits;
}

static void complete(struct line *line, int chat, const char *body, size_t size) {
  int tokens = number_behind(body, size, "\"max_completion_tokens\"", 0), length;
  char text[4096], transfer[1024] = "";
  if (tokens < 1) tokens = number_behind(body, size, "\"max_tokens\"", TOKENS_DEFAULT);
  serial++;
  if (teller >= 0) look_up(line->engine, chat, body, size);
  if (is_true(body, size, "\"do_remote_decode\"")) {
    prefills++;
    sprintf(transfer, ",\"kv_transfer_params\":{\"do_remote_prefill\":true,\"do_remote_decode\":false,\"remote_block_ids\":[[%lld,%lld,103,104,105,106,107,108,109,110,111,112,113,114,115,116]],\"remote_engine_id\":\"6f1f1b0e-8f3a-4a56-9d0a-000000000001\",\"remote_request_id\":\"r%lld\",\"remote_host\":\"127.0.0.1\",\"remote_port\":5600,\"tp_size\":1}", serial % 9000 + 1000, serial % 700 + 100, serial);
  } else {
    answers++;
  }
  if (!is_true(body, size, "\"stream\"")) {
    const char *words = "The quick brown fox jumps over the lazy dog and runs away from it.";
    int said = 40 + serial % 27; /* so that lengths differ, as they do */
    length = chat
      ? sprintf(text, "{\"id\":\"chatcmpl-%08llx\",\"object\":\"chat.completion\",\"created\":1790000000,\"model\":\"m\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"%.*s\",\"refusal\":null,\"tool_calls\":[]},\"logprobs\":null,\"finish_reason\":\"length\",\"stop_reason\":null}],\"usage\":{\"prompt_tokens\":256,\"total_tokens\":%d,\"completion_tokens\":%d}%s}", serial, said, words, 256 + tokens, tokens, transfer)
      : sprintf(text, "{\"id\":\"cmpl-%08llx\",\"object\":\"text_completion\",\"created\":1790000000,\"model\":\"m\",\"choices\":[{\"index\":0,\"text\":\"%.*s\",\"logprobs\":null,\"finish_reason\":\"length\",\"stop_reason\":null}],\"usage\":{\"prompt_tokens\":256,\"total_tokens\":%d,\"completion_tokens\":%d}%s}", serial, said, words, 256 + tokens, tokens, transfer);
    answer(line, 200, text, length);
    return;
  }
  length = sprintf(text, "HTTP/1.1 200 OK\r\n%scontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n", date());
  say(line, text, length);
  if (chat) {
    const char *role = "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1790000000,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n";
    length = sprintf(text, "%zx\r\n%s\r\n", strlen(role), role);
    say(line, text, length);
  }
  line->chat = chat;
  line->tokens_left = tokens;
  say_token(line);
  if (line->tokens_left) wait_for_token(line, now_ns() + pace_ns);
}

static void serve(struct line *line, const char *head, const char *body, size_t size) {
  const char *models = "{\"object\":\"list\",\"data\":[{\"id\":\"m\",\"object\":\"model\",\"created\":1,\"owned_by\":\"vllm\",\"max_model_len\":32768}]}";
  char text[512];
  if (!strncmp(head, "POST /v1/chat/completions ", 26)) complete(line, 1, body, size);
  else if (!strncmp(head, "POST /v1/completions ", 21)) complete(line, 0, body, size);
  else if (!strncmp(head, "GET /health", 11)) answer(line, 200, "", 0);
  else if (!strncmp(head, "GET /v1/models", 14)) answer(line, 200, models, strlen(models));
  else if (!strncmp(head, "GET /pace?us=", 13)) { pace_ns = atoll(head + 13) * 1000; answer(line, 200, "{}", 2); }
  else if (!strncmp(head, "GET /counts", 11)) {
    int length = sprintf(text, "{\"prefill\": %lld, \"answers\": %lld}", prefills, answers);
    prefills = answers = 0;
    answer(line, 200, text, length);
  } else if (teller >= 0 && !strncmp(head, "POST /tokenize ", 15)) {
    size_t length;
    char *told = ask_teller(line->engine, 'T', body, size, &length);
    answer(line, 200, told, length);
    free(told);
  } else if (teller >= 0 && !strncmp(head, "GET /metrics", 12)) {
    struct engine *engine = &engines[line->engine];
    int length = sprintf(text, "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\nvllm:generation_tokens_total 1\nvllm:prompt_tokens_total %lld\nvllm:prefix_cache_queries_total %lld\nvllm:prefix_cache_hits_total %lld\n", engine->prompt_tokens, engine->prompt_tokens, engine->hit_tokens);
    answer(line, 200, text, length);
  } else if (!strncmp(head, "GET /metrics", 12)) {
    const char *lines = "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\nvllm:prompt_tokens_total 1\nvllm:generation_tokens_total 1\n";
    answer(line, 200, lines, strlen(lines));
  } else answer(line, 404, "{}", 2);
}

static void read_requests(struct line *line) {
  while (!line->closed && !line->tokens_left && line->in_size) {
    char *end = memmem(line->in, line->in_size, "\r\n\r\n", 4), *length;
    if (!end) return;
    size_t head = end + 4 - line->in, size = 0;
    *end = 0;
    if ((length = strcasestr(line->in, "\r\ncontent-length:"))) size = strtoul(length + 17, NULL, 10);
    if (line->in_size < head + size) { *end = '\r'; return; }
    serve(line, line->in, line->in + head, size);
    line->in_size -= head + size;
    memmove(line->in, line->in + head + size, line->in_size);
  }
}

static void take(struct line *line) {
  for (;;) {
    if (line->in_size + HEAD_MOST > line->in_room) {
      line->in_room = line->in_room * 2 + HEAD_MOST;
      line->in = realloc(line->in, line->in_room + 1);
    }
    size_t room = line->in_room - line->in_size;
    ssize_t got = recv(line->socket, line->in + line->in_size, room, 0);
    if (got <= 0) {
      if (got == 0 || errno != EAGAIN) line->closed = 1;
      break;
    }
    line->in_size += got;
    if ((size_t)got < room) break;
  }
  read_requests(line);
}

static void forget(struct line *line) {
  if (line->socket >= 0) close(line->socket);
  line->socket = -1;
  if (line->queued) return; /* freed when its turn comes */
  free(line->in);
  free(line->out);
  free(line);
}

static void welcome(int listening, int engine) {
  int socket, on = 1;
  while ((socket = accept4(listening, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
    struct line *line = calloc(1, sizeof *line);
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    line->socket = socket;
    line->engine = engine;
    watch(line, EPOLL_CTL_ADD, EPOLLIN);
  }
}

int main(int count, char **words) {
  struct epoll_event events[256];
  int first_port = 1;
  poller = epoll_create1(0);
  if (count > 2 && !strcmp(words[1], "-t")) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", words[2]);
    teller = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(teller, (struct sockaddr *)&address, sizeof address)) { perror(words[2]); return 1; }
    first_port = 3;
  }
  engines = calloc(count, sizeof *engines);
  for (int i = first_port; i < count; i++) {
    struct line *line = calloc(1, sizeof *line);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(words[i])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1;
    line->listens = 1;
    line->engine = i - first_port;
    line->socket = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(line->socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(line->socket, (struct sockaddr *)&address, sizeof address) || listen(line->socket, 4096)) { perror(words[i]); return 1; }
    watch(line, EPOLL_CTL_ADD, EPOLLIN);
  }
  for (;;) {
    struct timespec wait = {0, 0};
    long long left = first ? first->due_ns - now_ns() : 0;
    if (left > 0) { wait.tv_sec = left / 1000000000; wait.tv_nsec = left % 1000000000; }
    int ready = epoll_pwait2(poller, events, 256, first ? &wait : NULL, NULL);
    for (int i = 0; i < ready; i++) {
      struct line *line = events[i].data.ptr;
      if (line->listens) { welcome(line->socket, line->engine); continue; }
      if (line->socket < 0) continue;
      if (events[i].events & EPOLLOUT) {
        push_out(line);
        if (!line->out_size) watch(line, EPOLL_CTL_MOD, EPOLLIN);
      }
      if (events[i].events & ~EPOLLOUT) take(line);
      if (line->closed) forget(line);
    }
    long long now = now_ns();
    for (int turns = 0; first && first->due_ns <= now && turns < 512; turns++) {
      struct line *line = first;
      first = line->next;
      if (!first) last = NULL;
      line->queued = 0;
      if (!line->closed) say_token(line);
      if (line->closed) forget(line);
      else if (line->tokens_left) wait_for_token(line, line->due_ns + pace_ns > now ? line->due_ns + pace_ns : now);
      else read_requests(line);
    }
  }
}
